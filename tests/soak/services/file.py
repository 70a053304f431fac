"""What can be done to a directory of locks."""

from __future__ import annotations

import itertools
import math
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.services.service import Service, Strike, pause

#: The size of the disk, and for how many seconds it is full.
SIZE, FULL = "4m", 1.0


def fill(disk: Path) -> None:
    """Let the disk have no space and no inode left for a while."""
    fillers = []
    try:
        for number in itertools.count():
            filler = disk / f"filler-{number}"
            fillers.append(filler)
            with filler.open("wb", buffering=0) as file:
                file.write(bytes(1 << 16))
    except OSError:
        pause(FULL)
    finally:
        for filler in fillers:
            filler.unlink(missing_ok=True)


@contextmanager
def open_file(directory: Path) -> Iterator[Service]:
    """Use a small disk in memory, if this user may mount one."""
    disk = directory / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes=2000,mode=700", "tmpfs", str(disk)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True, check=False).returncode
    locks = disk / "locks"
    locks.mkdir()

    def fill_disk(choices: random.Random) -> None:
        fill(disk)

    try:
        strikes = (Strike("full disk", fill_disk),) if mounted else ()
        yield Service(locks.as_uri(), strikes, killed=0.0, stopped=math.inf)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)
