"""Control groups: processes stand still, as on a suspended machine, or may use little memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


@contextmanager
def short_of_memory(pid: int, most: int) -> Iterator[Callable[[], int]]:
    """Let the process *pid* use *most* bytes more. Yields how often the kernel has killed one for that.

    Skip the test if we have no right to.
    """
    second = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup" if second else "/sys/fs/cgroup/memory") / f"distlock-tests-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(most))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        pytest.skip("no right to limit memory")
    events = group / ("memory.events" if second else "memory.oom_control")

    def kills() -> int:
        return int(next(line.split()[1] for line in events.read_text().splitlines() if "oom_kill " in line))

    try:
        yield kills
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text(), "its processes have ended")
        group.rmdir()
