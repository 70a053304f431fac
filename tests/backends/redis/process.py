"""A process of its own that holds or queues, so that it can be killed and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.redis_server import stand_still

_CODE = """
import signal, sys
from tests.backends.redis.contender import Contender, ask
contender = Contender(sys.argv[1])
print(type(contender.request(ask(sys.argv[2]))).__name__, contender.process, flush=True)
signal.pause()
"""


_CROWD = """
import os, signal, sys
from tests.backends.redis.contender import Contender, ask
for _ in range(int(sys.argv[3])):
    if os.fork() == 0:
        contender = Contender(sys.argv[1])
        assert type(contender.request(ask(sys.argv[2]))).__name__ == "Queued"
        break
signal.pause()
"""


@contextmanager
def crowd(url: str, key: str, count: int) -> Iterator[Callable[[], None]]:
    """Start *count* processes that queue for *key*. Yield what kills all of them at once."""
    forker = subprocess.Popen([sys.executable, "-c", _CROWD, url, key, str(count)], start_new_session=True)

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.killpg(forker.pid, signal.SIGKILL)
        forker.wait()

    try:
        yield kill
    finally:
        kill()


class OtherProcess:
    """Asks once for *key*, and does nothing more."""

    def __init__(self, url: str, key: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _CODE, url, key], stdout=subprocess.PIPE, text=True
        )
        assert self._popen.stdout is not None
        self.answer, name = self._popen.stdout.readline().split()
        self.channel = f"dl:2:ch:{name}"

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()

    def stop(self) -> None:
        """Let it hang: its connections stay, and the kernel accepts what is sent to them."""
        stand_still(self._popen)


StartProcess = Callable[[str, str], OtherProcess]


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    started: list[OtherProcess] = []

    def start(url: str, key: str) -> OtherProcess:
        started.append(OtherProcess(url, key))
        return started[-1]

    yield start
    for one in started:
        one.kill()
