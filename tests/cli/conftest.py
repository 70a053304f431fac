"""The command, run as a person runs it: each word, and what is written and returned."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

import distlock
from distlock.cli.main import distlock as command
from tests.redis_server import RedisServer, own_server, redis_server
from tests.zookeeper_server import zookeeper_server

__all__ = ["command", "own_server", "redis_server", "zookeeper_server"]

PATIENCE = 60.0

Run = Callable[..., Result]


def until(condition: Callable[[], bool]) -> None:
    """Within the time that processes take to say what has lasted for a while."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)


@pytest.fixture
def prefix() -> str:
    return f"shop{secrets.token_hex(4)}"


@pytest.fixture
def environment(redis_server: RedisServer, prefix: str) -> dict[str, str]:
    return {"DISTLOCK_URL": redis_server.url, "DISTLOCK_PREFIX": prefix}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    def run(*words: str, **options: str) -> Result:
        return CliRunner().invoke(command, words, env=environment, prog_name="distlock", **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def client(redis_server: RedisServer, prefix: str) -> Iterator[distlock.Locks]:
    """A process of the site."""
    locks = distlock.connect(redis_server.url, prefix=prefix, max_hold=600, timeout=PATIENCE)
    yield locks
    locks.close()
