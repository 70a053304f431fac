"""Six steps of a lock on Redis. Each step mends a fault of the step before, and has another."""

from __future__ import annotations

import threading
import time
from uuid import uuid4

from redis import Redis


class RedisStep0:
    """Step 0: SETNX with an expiry, and DEL. The caller that sets the key has the lock."""

    #: The value of the key. Only later steps read it.
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


PATIENCE = 2.0
PAUSE = 0.1


class RedisStep1(RedisStep0):
    """Step 1: a caller that finds the lock taken asks again, every 100 ms for 2 s."""

    def acquire(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not super().acquire():
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)
        return True


class RedisStep2(RedisStep1):
    """Step 2: the value is a UUID, and the key is deleted only if it has that value."""

    def __init__(self, redis: Redis, name: str, expiry: float = 30.0) -> None:
        super().__init__(redis, name, expiry)
        self.value = str(uuid4())

    def release(self) -> None:
        if self.is_mine():
            self.redis.delete(self.name)

    def is_mine(self) -> bool:
        return self.redis.get(self.name) == self.value.encode()


RENEWALS = 10


class RedisStep3(RedisStep2):
    """Step 3: a thread renews the lock every third of the expiry, at most 10 times."""

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


DELETE_IF_MINE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
"""
EXTEND_IF_MINE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
"""


class RedisStep4(RedisStep3):
    """Step 4: Lua scripts compare and delete, or compare and expire, in one step on the server."""

    def release(self) -> None:
        self.released.set()
        self.redis.eval(DELETE_IF_MINE, 1, self.name, self.value)

    def extend(self) -> bool:
        return bool(self.redis.eval(EXTEND_IF_MINE, 1, self.name, self.value, self.milliseconds))


class Inside(threading.local):
    """How often the running thread has entered any lock of `RedisStep5`, and not left it."""

    count = 0


class RedisStep5(RedisStep4):
    """Step 5: each thread counts its entries. Only the first entry and the last release ask Redis."""

    inside = Inside()

    def acquire(self) -> bool:
        if self.inside.count == 0 and not super().acquire():
            return False
        self.inside.count += 1
        return True

    def release(self) -> None:
        self.inside.count -= 1
        if self.inside.count == 0:
            super().release()
