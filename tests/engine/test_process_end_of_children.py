"""A child of multiprocessing that ends with a lock held gives it back, though it runs no exit hooks."""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import distlock
from tests.redis_server import RedisServer

#: Longer than a test waits: a caller that gets the lock before did not wait for the lease to end.
TTL = 90.0
CEILING = 45.0


@pytest.fixture(params=["redis", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/locks"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


def hold(url: str, name: str, pipe: Connection, held: threading.Event | None = None) -> None:
    global grant
    locks = distlock.connect(url, prefix="children", ttl=TTL)
    grant = locks.lock(name).acquire(timeout=CEILING)
    pipe.send("held")
    if held is not None:
        held.set()
    pipe.recv()


def hold_in_a_thread(url: str, name: str, pipe: Connection) -> None:
    """The thread goes on when this function is over."""

    def work() -> None:
        hold(url, name, pipe, held)
        assert grant is not None
        pipe.send(grant.lost)

    held = threading.Event()
    threading.Thread(target=work).start()
    held.wait(CEILING)


grant: distlock.Grant | None = None


@pytest.mark.fault("F06")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("function", [hold, hold_in_a_thread])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_what_a_child_holds_at_its_end_is_given_back(url: str, method: str, function: Any) -> None:
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    name = f"product_{uuid.uuid4().hex[:8]}"
    child = context.Process(target=function, args=(url, name, theirs))
    child.start()
    locks = distlock.connect(url, prefix="children", ttl=TTL)
    try:
        assert ours.poll(CEILING)
        assert ours.recv() == "held"
        assert locks.lock(name).acquire(timeout=0) is None
        ours.send("go on")
        if function is hold_in_a_thread:
            assert ours.poll(CEILING)
            assert ours.recv() is False, "its lock was taken from a thread that goes on"
        child.join(CEILING)
        assert child.exitcode == 0
        taken = locks.lock(name).acquire(timeout=CEILING)
        assert taken is not None
        taken.release()
    finally:
        child.kill()
        child.join()
        locks.close()
