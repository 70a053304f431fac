"""Step 0: the caller that manages to set the key has the lock."""

from __future__ import annotations

from redis import Redis


class RedisStep0:
    """SETNX with an expiry; DEL."""

    #: What the key holds. Nobody looks at it yet.
    value = "OK"

    def __init__(self, redis: Redis, name: str, expiry: float = 30.0) -> None:
        self.redis, self.name, self.expiry = redis, name, expiry

    def acquire(self) -> bool:
        return bool(self.redis.set(self.name, self.value, nx=True, px=self.milliseconds))

    def release(self) -> None:
        self.redis.delete(self.name)

    @property
    def milliseconds(self) -> int:
        return int(self.expiry * 1000)
