"""Descriptors and connections that are not to be had: told as such, and healed when they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distlock
from tests.zookeeper_server import ZooKeeperServer, eventually, running

#: Longer than any of it takes on a busy machine.
CEILING = 60.0


def test_descriptors_that_run_out_are_told_and_used_later(zookeeper_server: ZooKeeperServer) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, zookeeper_server.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * CEILING,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout.split() == ["told"] * 3 + ["held", "closed"], child.stderr


LIMITED = f"""
import encodings.idna, os, resource, secrets, sys
from distlock import clock
from distlock.backends.base import Acquired, LockRequest
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.errors import BackendUnavailable
from distlock.testing.protocol_fixtures import RecordingSink

def opened():
    return len(os.listdir("/proc/self/fd"))

def request():
    key = "limited:product_" + secrets.token_hex(4)
    return backend.request(LockRequest(key, secrets.token_hex(16), 60.0, 1))

backend = ZooKeeperBackend(sys.argv[1], io_timeout=2.0)
backend.open(RecordingSink())
before = opened()
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for spare in range(3):
    # One that is open just now looks at what is open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (before - 1 + spare, most))
    try:
        request()
    except BackendUnavailable as error:
        assert "Too many open files" in str(error) and "ulimit -n" in str(error), error
        print("told")
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
answer, end = None, clock.now() + {CEILING}
while not isinstance(answer, Acquired) and clock.now() < end:
    try:
        answer = request()
    except BackendUnavailable:
        pass  # It may be on its way still.
assert isinstance(answer, Acquired)
print("held")
backend.close()
assert opened() == before
print("closed")
"""


@pytest.fixture
def crowded() -> Iterator[ZooKeeperServer]:
    """A server that lets two clients of a host in: one is the test itself."""
    yield from running(maxClientCnxns=2)


def test_a_server_that_lets_no_more_clients_in_is_told_with_its_setting(crowded: ZooKeeperServer) -> None:
    first, second = (distlock.connect(crowded.url, timeout=CEILING, io_timeout=1.0) for _ in range(2))
    try:
        with first.lock("product_1"), pytest.raises(distlock.BackendUnavailable, match="maxClientCnxns"):
            second.lock("product_2").acquire()
        first.close()

        def let_in() -> bool:
            try:
                return bool(second.lock("product_2").acquire())
            except distlock.BackendUnavailable:
                return False

        eventually(let_in, "there is room again", patience=CEILING)
    finally:
        first.close()
        second.close()
