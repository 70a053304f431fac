"""The engine of a client, between its callers and the lock service. `distlock.engine.engine` is its entry."""

from __future__ import annotations
