"""Where Django looks for commands."""

from __future__ import annotations
