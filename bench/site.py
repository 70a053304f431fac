"""The demo's shop with settings of its own: what gunicorn serves in a bench."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from typing import Any

from bench.buyers import INSIDE
from demo_shop.configuration import Configuration
from loadtest.stack import APPLICATIONS


def shop(framework: str, pause: float, **settings: object) -> Any:
    """The WSGI application of *framework*'s shop.

    *pause*: how long a purchase thinks under its lock, seconds. *settings*: what ``DISTLOCK`` has beside
    LOCATION and PREFIX.
    """

    def distlock(self: Configuration) -> dict[str, dict[str, object]]:
        return {"default": {"LOCATION": self.lock, "PREFIX": "shop", **settings}}

    Configuration.distlock = distlock  # type: ignore[method-assign]
    os.environ["SHOP_PAUSE"] = str(pause)
    module, _, name = APPLICATIONS[framework].partition(":")
    return timed(getattr(importlib.import_module(module), name))


def timed(application: Any) -> Any:
    """*application*, whose answers say how long they took from the moment that they had a thread."""

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        began = time.monotonic()

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, (INSIDE, f"{time.monotonic() - began:.6f}")], *rest)

        return application(environ, start)

    return served


def told(framework: str, pause: float = 0.0, **settings: object) -> str:
    """How gunicorn is told to serve that."""
    words = [repr(framework), repr(pause), *(f"{word}={value!r}" for word, value in settings.items())]
    return f"bench.site:shop({', '.join(words)})"
