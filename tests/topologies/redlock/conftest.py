from __future__ import annotations

from tests.topologies.redlock.contender import contender, key
from tests.topologies.redlock.five import five, own_five

__all__ = ["contender", "five", "key", "own_five"]
