"""Programs whose clock a test sets, a Redis server among them: they preload `shifted_clock.c`."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.redis_server import RedisServer, started

SOURCE = Path(__file__).with_suffix(".c")
HOUR = 3600.0


@cache
def library() -> Path:
    """Compile the library, once for each process of the tests."""
    if shutil.which("gcc") is None:
        pytest.fail("gcc is not installed: apt-get install gcc libc6-dev")
    folder = Path(tempfile.mkdtemp(prefix="distlock-clock-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "shifted_clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O", "-o", made, SOURCE], check=True, timeout=60)
    return made


class Shift:
    """What programs read that preload the library, in the new file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(struct.pack("=qqd", 0, 0, 1.0))
        self.environment = {"LD_PRELOAD": str(library()), "SHIFTED_CLOCK": str(path)}

    def set(self, ahead: float, pace: float = 1.0) -> None:
        """Let the clock be *ahead* of the machine's, seconds, and from now on *pace* times as quick."""
        with self._path.open("r+b") as file:
            file.write(struct.pack("=qqd", int(ahead * 1e9), time.time_ns(), pace))


class ShiftedRedis(RedisServer):
    """A server whose clock is that of the machine until the test calls `set_clock`."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        shift = Shift(self.folder / "shift")
        self.environment, self.set_clock = shift.environment, shift.set

    def ahead(self) -> float:
        """Return by how many seconds the server believes to be ahead of this machine."""
        seconds, micros = self.client.time()
        return float(seconds + micros / 1e6 - time.time())


@pytest.fixture
def shifted_server() -> Iterator[ShiftedRedis]:
    server = ShiftedRedis()
    yield from started(server)  # type: ignore[misc]
