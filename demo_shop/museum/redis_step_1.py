"""Step 1: a caller that finds the lock taken asks again."""

from __future__ import annotations

import time

from demo_shop.museum.redis_step_0 import RedisStep0

PATIENCE = 2.0
PAUSE = 0.1


class RedisStep1(RedisStep0):
    """As step 0, retried every 100 ms for 2 s."""

    def acquire(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not super().acquire():
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)
        return True
