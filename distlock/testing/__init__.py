"""Tools for tests of a site (`race` and the fakes) and of a backend (the conformance kit)."""

from __future__ import annotations

from distlock.testing.fakes import backend_down, contended, held_locks, lose, taken_locks
from distlock.testing.race_threads import Race
from distlock.testing.racing import race

__all__ = ["Race", "backend_down", "contended", "held_locks", "lose", "race", "taken_locks"]
