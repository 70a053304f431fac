"""The cgroup freezer: processes stand still without a signal, as those of a suspended machine do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.redis_server import eventually


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Freeze the processes *pids* until the block ends. Skip the test if we have no right to."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroups of version 2 are mounted")
    before = {pid: _group_of(pid) for pid in pids}
    group = root / f"distlock-tests-{os.getpid()}"
    try:
        group.mkdir()
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        pytest.skip("no right to make a cgroup")
    try:
        (group / "cgroup.freeze").write_text("1")
        eventually(lambda: "frozen 1" in (group / "cgroup.events").read_text(), "the processes are frozen")
        yield
    finally:
        (group / "cgroup.freeze").write_text("0")
        for pid, place in before.items():
            (root / place / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def _group_of(pid: int) -> str:
    """Return where the process *pid* stands below the root of the cgroups of version 2."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
