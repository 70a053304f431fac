"""The directory of a run, gone when it ends, or when the next one starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from demo_shop.configuration import VAR


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    VAR.mkdir(exist_ok=True)
    sweep(VAR, "run-")
    sweep(Path(tempfile.gettempdir()), "distlock-run-")
    directory = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=VAR))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of runs that were killed, and could not do it themselves."""
    for left in parent.glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).split("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True
