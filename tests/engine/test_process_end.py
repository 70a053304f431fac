"""A process that ends with a lock held gives it back; not while a thread of it may still work under it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distlock
from tests.engine.ending import TTL
from tests.redis_server import RedisServer
from tests.zookeeper_server import ZooKeeperServer

Start = Callable[[str, str, str], "subprocess.Popen[str]"]

#: Seconds that a passing run never needs, and less than the ttl.
CEILING = 45.0


@pytest.fixture(params=["redis", "zookeeper", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/locks"
    server: RedisServer | ZooKeeperServer = request.getfixturevalue(f"{request.param}_server")
    return server.url


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[subprocess.Popen[str]] = []

    def start(url: str, name: str, how: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.engine.ending", url, name, how],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert made[-1].stdout is not None
        assert made[-1].stdout.readline() == "held\n"
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.communicate()


@pytest.fixture
def locks(url: str) -> Iterator[distlock.Locks]:
    locks = distlock.connect(url, prefix="ending", ttl=TTL)
    yield locks
    locks.close()


def some_name() -> str:
    return f"product_{uuid.uuid4().hex[:8]}"


@pytest.mark.fault("F06")
@pytest.mark.parametrize("how", ["main", "thread"])
def test_a_lock_that_nobody_can_work_under_is_given_back(
    locks: distlock.Locks, url: str, start: Start, how: str
) -> None:
    name = some_name()
    process = start(url, name, how)
    assert locks.lock(name).acquire(blocking=False) is None
    said, _ = process.communicate("go on\n", timeout=CEILING)
    # It is marked lost before anybody else can have it.
    assert said == "lost True\n"
    grant = locks.lock(name).acquire(timeout=CEILING)
    assert grant is not None
    grant.release()


@pytest.mark.fault("F06")
def test_a_daemon_thread_keeps_its_lock(url: str, start: Start) -> None:
    name = some_name()
    process = start(url, name, "daemon")
    process.wait(CEILING)
    # Not by communicate(), which misses what has come along with the line before.
    assert process.stdout is not None
    assert process.stdout.read() == "lost True\n"
    locks = distlock.connect(url, prefix="ending", ttl=TTL)
    if url.startswith("file:"):
        # There the kernel gives it back, when the process is gone with all of its threads.
        assert locks.lock(name).acquire(timeout=CEILING)
    else:
        assert locks.lock(name).acquire(blocking=False) is None
        assert locks.lock(name).locked()
    locks.close()


@pytest.mark.fault("F11")
def test_a_service_that_does_not_answer_delays_the_end_for_seconds_at_most(
    own_server: RedisServer, start: Start
) -> None:
    process = start(own_server.url, some_name(), "main")
    own_server.pause()
    said, _ = process.communicate("go on\n", timeout=CEILING)
    assert said == "lost True\n"


REFUSED = """
import threading

import distlock
from distlock.testing.waits import wait_for_waiters

locks = distlock.connect("memory://", timeout=60, max_waiters=1)
grant = locks.lock("product_1").acquire()
waiter = threading.Thread(target=locks.lock("product_1").acquire)
waiter.start()
wait_for_waiters(locks, 1)
for _ in range(5):
    try:
        locks.lock("product_1").acquire()
    except distlock.TooManyWaiters:
        pass
grant.release()
waiter.join()
"""


def test_what_was_refused_last_is_logged() -> None:
    process = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=CEILING)
    assert process.returncode == 0
    counts = [int(line.split()[0]) for line in process.stderr.splitlines() if "refused at once" in line]
    assert sum(counts) == 5
