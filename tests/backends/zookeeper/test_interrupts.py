"""A signal handler raises while a session is being opened: `close` leaves nothing of it, and ends."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from types import FrameType
from typing import Any

import pytest

import distlock
from tests.backends.zookeeper.contender import MakeContender, ask
from tests.core.interrupts import Interrupted
from tests.zookeeper_server import PATIENCE, ZooKeeperServer, eventually

#: What opens a session: ours, what kazoo does for us, and what both wait with.
_PLACES = ("/distlock/backends/zookeeper/", "/kazoo/", threading.__file__)


def _opens(frame: FrameType) -> bool:
    before = frame.f_back
    while before is not None and before.f_code.co_filename == threading.__file__:
        if before.f_code.co_name == "start":
            # How it waits until the thread has begun is Python's own, and survives no interrupt.
            return False
        before = before.f_back
    return any(place in frame.f_code.co_filename for place in _PLACES)


class _Moments:
    """Raises `Interrupted` at the moment *number*: after a call of C, or at the start of a function."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.where = ""

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("c_return", "call") or not _opens(frame):
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            self.where = (
                f"{frame.f_code.co_filename}:{frame.f_lineno} {event} {getattr(argument, '__name__', '')}"
            )
            raise Interrupted


def _left_behind() -> tuple[int, int]:
    """How many threads and descriptors the process has, as the kernel counts them."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def _connections(server: ZooKeeperServer) -> int:
    return server.tell("cons").count("\n")


# An interrupt may come where an object is being made: the collector finds it half done.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_session_whose_opening_is_interrupted_is_closed(
    own_zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    locks = distlock.connect(own_zookeeper.url, prefix="interrupts")
    with locks.lock("a"):
        pass
    locks.close()
    before, connections = _left_behind(), _connections(own_zookeeper)
    points = 0
    for number in itertools.count(1):
        moments = _Moments(number)
        sys.setprofile(moments.look)
        try:
            with locks.lock("a"):
                pass
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
        locks.close()
        if not moments.where:
            break
        points += 1
        eventually(lambda: _left_behind() <= before, f"nothing is left after {moments.where}")
    assert points > 100, f"{points} points: is anything traced?"
    eventually(lambda: _connections(own_zookeeper) <= connections, "no connection is left")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_close_that_is_interrupted_leaves_nothing_behind(
    own_zookeeper: ZooKeeperServer, contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session ends by itself, and where it had not begun to end the next `close` ends it."""
    caplog.set_level(logging.CRITICAL)
    one, connections, points = contender(own_zookeeper.url), _connections(own_zookeeper), 0
    for number in itertools.count(1):
        one.hold(mine := ask(ttl=1.0))
        janitor = one._sessions[mine.ttl]
        moments = _Moments(number)
        sys.setprofile(moments.look)
        try:
            one.close()
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
        if not moments.where:
            break
        points += 1
        one.close()
        janitor._thread.join(PATIENCE)
        assert not janitor._thread.is_alive(), moments.where
        eventually(lambda: _connections(own_zookeeper) <= connections, f"and its session: {moments.where}")
    assert points > 10, f"{points} points: is anything traced?"
