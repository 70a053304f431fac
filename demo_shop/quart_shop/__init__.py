"""The shop as a Quart application, which is Flask for an event loop."""

from __future__ import annotations
