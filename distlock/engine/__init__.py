"""The engine, between callers and a lock service: rooms, holds, turns, the keeper, and the steps of all."""

from __future__ import annotations
