"""The calls of a client, in a thread and as a task, and what they may end in when the lock service is odd."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import distlock

#: How long a caller waits for a lock, seconds.
TIMEOUT = 0.2
#: Seconds by which a busy machine may be late.
SLACK = 15.0
#: How often a call may ask anew before it gives up: each of them lasts `io_timeout` at the most.
TRIES = 3


def lock(locks: distlock.Locks, name: str) -> None:
    with locks.lock(name, timeout=TIMEOUT) as grant:
        grant.check()


def write_and_read(locks: distlock.Locks, name: str) -> None:
    with locks.write_lock(name, timeout=TIMEOUT) as grant:
        grant.downgrade()


def read(locks: distlock.Locks, name: str) -> None:
    with locks.read_lock(name, timeout=TIMEOUT):
        pass


def permits(locks: distlock.Locks, name: str) -> None:
    with locks.semaphore(name, limit=3, permits=2, timeout=TIMEOUT):
        pass


def latch(locks: distlock.Locks, name: str) -> None:
    of_two = locks.latch(name, 2, timeout=TIMEOUT)
    of_two.make()
    of_two.count_down(part="a")
    of_two.wait()


def latch_again(locks: distlock.Locks, name: str) -> None:
    try:
        locks.latch(name, timeout=TIMEOUT).count()
    finally:
        locks.latch(name, timeout=TIMEOUT).delete()


def locked(locks: distlock.Locks, name: str) -> None:
    locks.lock(name).locked()


def inspect(locks: distlock.Locks, name: str) -> None:
    for kind in ("lock", "semaphore", "latch"):
        str(locks.inspect(name, kind))  # type: ignore[arg-type]


def listed(locks: distlock.Locks, name: str) -> None:
    str(list(locks.list(name)))


def asked_back(locks: distlock.Locks, name: str) -> None:
    locks.request_release(name)


async def alock(locks: distlock.Locks, name: str) -> None:
    async with locks.lock(name, timeout=TIMEOUT) as grant:
        grant.check()


async def aread(locks: distlock.Locks, name: str) -> None:
    async with locks.read_lock(name, timeout=TIMEOUT):
        pass


async def apermits(locks: distlock.Locks, name: str) -> None:
    async with locks.semaphore(name, limit=3, permits=2, timeout=TIMEOUT):
        pass


async def alatch(locks: distlock.Locks, name: str) -> None:
    of_two = locks.latch(name, 2, timeout=TIMEOUT)
    await of_two.amake()
    await of_two.acount_down(part="a")
    await of_two.await_()


async def ainspect(locks: distlock.Locks, name: str) -> None:
    str(await locks.ainspect(name))


def as_task(
    call: Callable[[distlock.Locks, str], Awaitable[None]],
) -> Callable[[distlock.Locks, str], None]:
    async def limited(locks: distlock.Locks, name: str) -> None:
        await call(locks, name)

    return lambda locks, name: asyncio.run(limited(locks, name))


#: What every lock service can do.
CALLS: dict[str, Callable[[distlock.Locks, str], None]] = {
    "lock": lock,
    "locked": locked,
    "inspect": inspect,
    "list": listed,
    "alock": as_task(alock),
    "ainspect": as_task(ainspect),
}
#: What some of them can do, too.
MORE_CALLS = {
    "write and read": write_and_read,
    "read": read,
    "permits": permits,
    "latch": latch,
    "latch again": latch_again,
    "ask back": asked_back,
    "aread": as_task(aread),
    "apermits": as_task(apermits),
    "alatch": as_task(alatch),
}
ALL_CALLS = {**CALLS, **MORE_CALLS}


def made(locks: distlock.Locks, name: str, calls: list[str], io_timeout: float) -> list[str]:
    """Make *calls*, and return how they ended. Each has to end in time, well or with an error of distlock."""
    ends = []
    for call in calls:
        began, end, said = time.monotonic(), "well", ""
        try:
            ALL_CALLS[call](locks, name)
        except distlock.LockError as error:
            end, said = type(error).__name__, str(error)
        lasted = time.monotonic() - began
        assert end == "well" or 20 < len(said) < 1500, said
        assert said.isprintable(), said
        # A call is several requests: to take, to look, to give back.
        assert lasted < TRIES * (TIMEOUT + 2 * io_timeout) + SLACK, (call, end, lasted)
        ends.append(f"{call}: {end}")
    return ends


class _Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.records.append(record)


@contextmanager
def no_traceback() -> Iterator[None]:
    """Fail if distlock logs an error of its own code in the block."""
    seen = _Tracebacks()
    logger = logging.getLogger("distlock")
    logger.addHandler(seen)
    try:
        yield
    finally:
        logger.removeHandler(seen)
    ours = [
        one for one in seen.records if one.exc_info and not issubclass(one.exc_info[0], distlock.LockError)
    ]  # type: ignore[arg-type]
    assert not ours, [(one.getMessage(), one.exc_info) for one in ours]
