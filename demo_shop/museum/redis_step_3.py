"""Step 3: the lock lives longer while its holder works."""

from __future__ import annotations

import threading

from redis import Redis

from demo_shop.museum.redis_step_2 import RedisStep2

RENEWALS = 10


class RedisStep3(RedisStep2):
    """As step 2; renewed every third of the expiry, at most 10 times."""

    def __init__(self, redis: Redis, name: str, expiry: float = 30.0) -> None:
        super().__init__(redis, name, expiry)
        self.released = threading.Event()

    def acquire(self) -> bool:
        if not super().acquire():
            return False
        self.released = threading.Event()
        threading.Thread(target=self.renew, args=(self.released,), daemon=True).start()
        return True

    def release(self) -> None:
        self.released.set()
        super().release()

    def renew(self, released: threading.Event) -> None:
        for _ in range(RENEWALS):
            if released.wait(self.expiry / 3) or not self.extend():
                return

    def extend(self) -> bool:
        return self.is_mine() and bool(self.redis.pexpire(self.name, self.milliseconds))
