"""Processor time of the servers behind a site, as Linux tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg

from loadtest.stack import Stack

#: Fields of /proc/<pid>/stat behind the name: the parent, the session, and the times of a process itself and
#: of its children that have ended.
PARENT, SESSION, TIMES = 1, 3, slice(11, 15)


def of_site(stack: Stack) -> float:
    """Of all processes of all instances, seconds."""
    sessions = {str(child.process.pid) for child in stack.instances}
    return spent(stat for stat in stats() if stat[SESSION] in sessions)


def of_database(url: str) -> float:
    """Of all processes of a PostgreSQL on this machine, seconds."""
    with psycopg.connect(url) as connection:
        server = stat_of(connection.info.backend_pid)[PARENT]
        return spent([stat_of(int(server)), *(stat for stat in stats() if stat[PARENT] == server)])


def spent(processes: Iterable[list[str]]) -> float:
    return sum(int(ticks) for stat in processes for ticks in stat[TIMES]) / os.sysconf("SC_CLK_TCK")


def stats() -> Iterator[list[str]]:
    for process in Path("/proc").glob("[0-9]*"):
        # One may end while we look.
        with suppress(OSError):
            yield stat_of(int(process.name))


def stat_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
