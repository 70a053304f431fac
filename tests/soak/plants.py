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

    def keep_open(self: RedisConnection) -> None:
        self.shut_down()
        leaked.append(self)

    RedisConnection.disconnect = keep_open  # type: ignore[method-assign]


def a_release_does_not_look_whose_the_lock_is() -> None:
    # The release writes first, and restores what it has found if that is another's.
    _in_lua("release.lua", "redis.call('SET', KEYS[1], was, 'KEEPTTL')", "return {token, 1}")


def a_downgrade_opens_to_writers() -> None:
    before, after = "redis.call('SET', KEYS[1], last", "redis.call('DEL', KEYS[1], last"
    _in_lua("downgrade.lua", before, after)
    _in_lua("downgrade.lua", ".. READERS, 'PX', digits(ttl))", ".. READERS)")


def one_of_several_names_is_not_taken() -> None:
    from distlock.locks.engine_namespace import EngineNamespace

    acquire = EngineNamespace._acquire_all
    EngineNamespace._acquire_all = (  # type: ignore[method-assign]
        lambda self, names, *more: acquire(self, names[:-1], *more)
    )


def a_deleted_latch_counts_as_open() -> None:
    from distlock.backends.latches import LatchState
    from distlock.locks import latch_waits

    apply, opened = latch_waits._apply, LatchState("", 1, 0, 1.0, "")

    def passing(watched: Any, waiters: Any, state: LatchState | None) -> None:
        for waiter in waiters if state is None else ():
            waiter.end(opened)
        apply(watched, waiters, state or opened)

    latch_waits._apply = passing


def a_key_never_expires() -> None:
    _in_lua("latch.lua", "redis.call('PEXPIRE', KEYS[2], WATCHED_MS)", "")


def a_request_to_release_is_not_told() -> None:
    _in_lua("requested_releases.lua", "return type(tokens) == 'string' and", "return false and")


def an_owner_waits_for_itself() -> None:
    from distlock.locks.rlock import RLock

    RLock._wanted = lambda self, entry: self.names  # type: ignore[method-assign]


def a_turn_never_ends() -> None:
    from distlock.engine import engine, hold

    hold.TURN = 3600.0
    engine.SPAN = 10**4


def an_error_comes_out_of_nothing() -> None:
    from distlock.backends.redis import RedisBackend
    from distlock.errors import BackendUnavailable

    request, calls = RedisBackend.request, itertools.count(1)

    def failing(self: RedisBackend, *arguments: Any) -> Any:
        if next(calls) % 500 == 0:
            raise BackendUnavailable("The lock service does not answer.")
        return request(self, *arguments)

    RedisBackend.request = failing  # type: ignore[method-assign]


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
        a_release_does_not_look_whose_the_lock_is,
        a_downgrade_opens_to_writers,
        one_of_several_names_is_not_taken,
        a_deleted_latch_counts_as_open,
        a_key_never_expires,
        a_request_to_release_is_not_told,
        an_owner_waits_for_itself,
        a_turn_never_ends,
        an_error_comes_out_of_nothing,
    )
}
