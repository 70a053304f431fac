"""The shop as an application of Quart, which is Flask for an event loop."""

from __future__ import annotations
