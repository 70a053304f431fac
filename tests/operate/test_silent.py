"""A process that holds a lock and stands still stays in the list, and is said not to respond."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import distlock
from distlock.cli.main import distlock as command
from distlock.clock import now
from distlock.operate.looking import Listed
from distlock.web.operate.pages import overview
from tests.redis_server import RedisServer, eventually, redis_server
from tests.web.quickstart import own_environment

__all__ = ["redis_server"]

#: Of one test: a process that was killed keeps its lock for its ttl.
PREFIX = ""

#: What it says of itself is true for four periods.
HOLD = """
import sys
import distlock
from distlock.engine import status

status.PUBLISH_PERIOD = 0.2
url, ttl, prefix = sys.argv[1:]
with distlock.connect(url, ttl=float(ttl), prefix=prefix).lock("product_1", timeout=60):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(url: str, ttl: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds ``product_1``, or waits for it, and has said so."""
    command = [sys.executable, "-c", HOLD, url, str(ttl), PREFIX]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def listed(url: str, held: bool = True) -> Listed | None:
    with closing(distlock.connect(url, prefix=PREFIX)) as locks:
        return next((one for one in locks.list() if one.held is held), None)


def silent(url: str, held: bool = True) -> bool:
    one = listed(url, held)
    return one is not None and one.party.silent > 0


@pytest.fixture(autouse=True)
def _prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PREFIX", f"shop{secrets.token_hex(4)}")


@pytest.fixture(params=["file", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return (tmp_path / "locks").as_uri()
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


def test_a_holder_that_stands_still_outlives_what_it_has_said_of_itself(url: str) -> None:
    with holding(url, 600) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        eventually(lambda: listed(url) is not None, "it says that it holds the lock", 60)
        os.kill(holder.pid, signal.SIGSTOP)
        stopped = now()
        # Longer than what it says is true for.
        while now() < stopped + 3:
            assert listed(url) is not None


@pytest.mark.parametrize("contended", [False, True], ids=["nobody waits", "one waits"])
def test_a_holder_that_stands_still_stays_in_the_list(url: str, contended: bool) -> None:
    with holding(url, 600) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        eventually(lambda: listed(url) is not None, "it says that it holds the lock", 60)
        os.kill(holder.pid, signal.SIGSTOP)
        if contended:
            with holding(url, 600):
                eventually(lambda: listed(url, held=False) is not None, "another one waits", 60)
                eventually(lambda: silent(url), "the holder does not respond", 60)
        eventually(lambda: silent(url), "the holder does not respond", 60)
        one = listed(url)
        assert one is not None
        assert "not responding for" in str(one.party)
        told = CliRunner().invoke(command, ["list", "--url", url, "--prefix", PREFIX]).output
        assert "held, not responding for" in told
        as_json = CliRunner().invoke(command, ["list", "--url", url, "--prefix", PREFIX, "--json"]).output
        (held,) = [one for one in map(json.loads, as_json.splitlines()) if one["held"]]
        assert held["silent"] > 0
        with closing(distlock.connect(url, prefix=PREFIX)) as locks:
            (line,) = overview(lambda: locks, "").lines
            assert "not responding for" in line.held_by
            state = locks.inspect("product_1")
            assert state.holder is not None
            assert state.holder.silent > 0
        os.kill(holder.pid, signal.SIGCONT)
        eventually(lambda: listed(url) is not None and not silent(url), "it responds again", 60)
        os.kill(holder.pid, signal.SIGSTOP)
        eventually(lambda: silent(url), "it does not respond again", 60)
    if url.startswith("file"):
        eventually(lambda: listed(url) is None, "it is gone with its process", 60)


def test_one_that_ended_leaves_the_list_when_its_lock_is_free(redis_server: RedisServer) -> None:
    url = redis_server.url
    with holding(url, 3) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        eventually(lambda: listed(url) is not None, "it says that it holds the lock", 60)
        holder.kill()
        eventually(lambda: silent(url), "it does not respond", 60)
        with closing(distlock.connect(url, prefix=PREFIX)) as locks:
            assert locks.lock("product_1").locked()
        eventually(lambda: listed(url) is None, "its lock is free", 60)
