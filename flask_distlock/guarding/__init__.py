"""The guard around a view or a function: its placement, its lock, its session and its response."""

from __future__ import annotations
