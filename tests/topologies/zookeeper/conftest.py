from __future__ import annotations

from tests.backends.zookeeper.contender import contender

__all__ = ["contender"]
