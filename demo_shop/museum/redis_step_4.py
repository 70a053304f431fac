"""Step 4: look and act in one step, in the server."""

from __future__ import annotations

from demo_shop.museum.redis_step_3 import RedisStep3

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
    """As step 3; compare-and-delete and compare-and-expire are Lua scripts."""

    def release(self) -> None:
        self.released.set()
        self.redis.eval(DELETE_IF_MINE, 1, self.name, self.value)

    def extend(self) -> bool:
        return bool(self.redis.eval(EXTEND_IF_MINE, 1, self.name, self.value, self.milliseconds))
