"""The faces of the frameworks, for what a grant can do in them."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from distlock.errors import ConfigurationError


def face(module: str) -> Any:
    """The *module* of a framework's face. By name and when it is needed: the core imports no framework."""
    return importlib.import_module(module)


def refuse_async(call: str) -> None:
    """Raise `ConfigurationError` in a coroutine: a database would stop the whole event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{call} waits for a database, and no other task of this event loop would run meanwhile. Write lock "
        "and transaction in a plain function, and call that with asyncio.to_thread() or sync_to_async()."
    )
