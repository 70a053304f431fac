"""What the settings of a site name by a dotted path."""

from __future__ import annotations

import importlib
from typing import Any

from distlock.errors import ConfigurationError


def imported(path: str, what: str) -> Any:
    """Import and return the object at *path*; messages call it *what*. Raises `ConfigurationError`."""
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{what} is {path!r}, which can't be imported: {error}") from error
