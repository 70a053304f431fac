"""From a request to the names of its locks."""

from __future__ import annotations
