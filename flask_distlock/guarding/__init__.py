"""From a request to its lock and back: the guard around a view, and where a guard may stand."""

from __future__ import annotations
