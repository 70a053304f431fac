"""A real redis-server for the tests: private, on a free port of the loopback, gone when the tests are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.servers.processes import free_port

#: Seconds after which a server that does not do what it should is a failure.
PATIENCE = 60.0


def eventually(
    condition: Callable[[], object], what: str, patience: float = PATIENCE, pause: float = 0.005
) -> None:
    """Wait for a state that nothing announces. *pause*: seconds between two looks, each of which costs."""
    never = threading.Event()
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        never.wait(pause)


def stand_still(process: subprocess.Popen[Any]) -> None:
    """SIGSTOP. Returns when every thread of it stands still: the signal alone leaves time for an answer."""
    process.send_signal(signal.SIGSTOP)
    # A process that stands still already does not stop again: what is told of it stays to be told.
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class RedisServer:
    """One server that keeps nothing unless told to by *arguments* of ``redis-server``."""

    program = "redis-server"
    #: What is added to the environment of the server.
    environment: Mapping[str, str] = MappingProxyType({})
    #: The path of its configuration file, or nothing if it has none.
    configuration_file: tuple[str, ...] = ()

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="distlock-redis-"))
        self.socket = self.folder / "redis.sock"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(port=self.port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 0))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [self.program, *self.configuration_file, "--port", str(self.port)]
        command += ["--bind", "127.0.0.1", "--save", ""]
        command += ["--unixsocket", str(self.socket), "--dir", str(self.folder), "--logfile", "redis.log"]
        environment = {**os.environ, **self.environment}
        self._process = subprocess.Popen([*command, *self._arguments], env=environment)
        eventually(self._answers, f"redis-server answers on port {self.port}")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "redis.log").read_text())
        try:
            return bool(self.client.ping())
        except redis.ResponseError:
            return True  # It wants a password: it answers.
        except redis.ConnectionError as error:
            return isinstance(error, redis.AuthenticationError)

    def tell(self, *command: str) -> None:
        """Send a command as it stands in the manual."""
        self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Let it hang: it accepts connections and answers nothing."""
        assert self._process is not None
        stand_still(self._process)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill it, and start it with what it saved: by default nothing."""
        self.kill()
        self.start()

    def close(self) -> None:
        self.client.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def running(*arguments: str) -> Generator[RedisServer]:
    """For fixtures: ``yield from running()``."""
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is not installed: apt-get install redis-server")
    yield from started(RedisServer(*arguments))


def started(server: RedisServer) -> Generator[RedisServer]:
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests that leave it as they found it."""
    yield from running()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may stop, fill and kill."""
    yield from running()
