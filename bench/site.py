"""The demo's shop with settings of its own: what gunicorn serves in a bench."""

from __future__ import annotations

import importlib
import os
from typing import Any

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
    return getattr(importlib.import_module(module), name)


def told(framework: str, pause: float = 0.0, **settings: object) -> str:
    """How gunicorn is told to serve that."""
    words = [repr(framework), repr(pause), *(f"{word}={value!r}" for word, value in settings.items())]
    return f"bench.site:shop({', '.join(words)})"
