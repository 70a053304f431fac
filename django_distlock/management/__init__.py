"""The package where Django looks for commands."""

from __future__ import annotations
