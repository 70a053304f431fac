"""A disk that is soon full, of any server or of a Redis that keeps its append-only file there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from loadtest.servers.processes import Account
from tests.redis_server import RedisServer, eventually

#: Bytes.
SIZE = 4 * 1024 * 1024


@contextmanager
def small_disk(folder: Path, size: int = SIZE, account: Account | None = None) -> Iterator[Path]:
    """Mount a disk of *size* bytes in *folder*. If we have no right to, it is a plain folder.

    *account*: the account that a server runs as, and that owns the disk.
    """
    disk = folder / "disk"
    disk.mkdir()
    owner = f",uid={account.uid},gid={account.gid}" if account else ""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}{owner}", "tmpfs", str(disk)]
    mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        yield disk
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill *disk* with a file, and return it. Skip the test if *disk* is a plain folder."""
    if not disk.is_mount():
        pytest.skip("no right to mount")
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(shutil.disk_usage(disk).total))
    return filler


def on_disk(disk: Path) -> tuple[str, ...]:
    """Return the arguments of a Redis server that keeps its file on *disk*."""
    return "--appendonly", "yes", "--dir", str(disk)


def fill_until_it_refuses(server: RedisServer, disk: Path) -> Path:
    """Fill the disk of *server* until it takes no write. Returns the file that fills it."""
    filler = fill(disk)
    eventually(lambda: _refuses_to_write(server), "it can't save what it is told")
    return filler


def free(server: RedisServer, filler: Path) -> None:
    """Take away *filler*. Returns when *server* has tried again, which it does once a second."""
    filler.unlink()
    eventually(lambda: not _refuses_to_write(server), "it saves what it is told")


def _refuses_to_write(server: RedisServer) -> bool:
    try:
        server.client.set("cache", "value")
    except redis.ResponseError as error:
        return "MISCONF" in str(error)
    return False
