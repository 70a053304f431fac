"""Bugs to plant in the workers of a soak, which it has to find. Each is a mistake that people make."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _in_lua(file: str, old: str, new: str) -> None:
    """Let the Lua script *file* be read with *new* instead of *old*."""
    read_bytes = Path.read_bytes

    def changed(path: Path) -> bytes:
        content = read_bytes(path)
        if path.name != file:
            return content
        assert old.encode() in content, f"{file} has no {old!r}"
        return content.replace(old.encode(), new.encode())

    Path.read_bytes = changed  # type: ignore[method-assign]
    Path.read_text = lambda path, *_, **__: path.read_bytes().decode()  # type: ignore[method-assign]


def a_lost_lease_is_ignored() -> None:
    from distlock.engine.hold import NameGrant

    NameGrant.lost = False  # type: ignore[assignment, method-assign]


def a_dead_holder_keeps_the_lock() -> None:
    _in_lua("hold.lua", "tonumber(ARGV[5])", "tonumber(ARGV[5]) * 50")


def a_reader_enters_beside_a_writer() -> None:
    _in_lua("read.lua", "if not owner and (", "if owner ~= READERS and (")


def a_writer_enters_beside_readers() -> None:
    _in_lua("request.lua", "if not owner then", "if not owner or owner == 'readers' then")


def a_permit_too_many_is_given() -> None:
    _in_lua("shared_hold.lua", "<= tonumber(limit)", "<= tonumber(limit) + 1")


def a_repeated_part_counts_again() -> None:
    _in_lua("latch.lua", "redis.call('HSETNX', KEYS[1], ARGV[3], ARGV[4]) == 1", "true")


def a_waiter_is_forgotten() -> None:
    from distlock.engine.sans_io import ThreadParker

    wake, calls = ThreadParker.wake, itertools.count(1)
    ThreadParker.wake = lambda self: None if next(calls) % 50 == 0 else wake(self)  # type: ignore[method-assign]


def a_fence_falls_back() -> None:
    from distlock.backends.redis import RedisBackend

    request, calls = RedisBackend.request, itertools.count(1)

    def lower(self: RedisBackend, *arguments: Any) -> Any:
        answer = request(self, *arguments)
        if hasattr(answer, "number") and next(calls) % 20 == 0:
            answer.number -= 10**7
        return answer

    RedisBackend.request = lower  # type: ignore[method-assign]


def a_connection_is_leaked() -> None:
    from distlock.backends.redis.connection import RedisConnection

    leaked: list[RedisConnection] = []
    RedisConnection.disconnect = leaked.append  # type: ignore[method-assign, assignment]


PLANTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        a_lost_lease_is_ignored,
        a_dead_holder_keeps_the_lock,
        a_reader_enters_beside_a_writer,
        a_writer_enters_beside_readers,
        a_permit_too_many_is_given,
        a_repeated_part_counts_again,
        a_waiter_is_forgotten,
        a_fence_falls_back,
        a_connection_is_leaked,
    )
}
