"""Step 2: the key says whose lock it is."""

from __future__ import annotations

from uuid import uuid4

from redis import Redis

from demo_shop.museum.redis_step_1 import RedisStep1


class RedisStep2(RedisStep1):
    """As step 1; the value is a UUID, and the key is deleted only if it has that value."""

    def __init__(self, redis: Redis, name: str, expiry: float = 30.0) -> None:
        super().__init__(redis, name, expiry)
        self.value = str(uuid4())

    def release(self) -> None:
        if self.is_mine():
            self.redis.delete(self.name)

    def is_mine(self) -> bool:
        return self.redis.get(self.name) == self.value.encode()
