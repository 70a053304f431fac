"""The servers of a run, which start when they are first needed, and the work that they have done."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg
import redis

from bench.network import farther
from loadtest.servers.lock_services import open_lock_service
from loadtest.servers.processes import workspace
from loadtest.stack import Stack

#: Indices of fields that follow the name in /proc/<pid>/stat: the parent, the process group, the session, and
#: the processor times of the process and of its ended children.
PARENT, GROUP, SESSION, TIMES = 1, 2, 3, slice(11, 15)


@dataclass(frozen=True, slots=True)
class ServerWork:
    """The work of a server since its start, or between two moments."""

    #: How often it has read from connections. All commands that are sent together count as one.
    requests: float = 0.0
    #: How many commands it has executed, including those inside scripts.
    commands: float = 0.0
    #: Processor seconds.
    cpu: float = 0.0

    def __sub__(self, before: ServerWork) -> ServerWork:
        return ServerWork(
            self.requests - before.requests, self.commands - before.commands, self.cpu - before.cpu
        )


class Services:
    """The servers of a run. It is a context manager, which stops them at its end."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self._urls: dict[tuple[str, float], str] = {}

    def __enter__(self) -> Self:
        self.directory = self._cleanup.enter_context(workspace())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def url(self, service: str, distance: float = 0.0) -> str:
        """Return the URL of *service*, with *distance* seconds more round-trip time than the loopback."""
        key = service, distance
        if key not in self._urls:
            self._urls[key] = self._away(service, distance) if distance else self._start(service)
        return self._urls[key]

    def _start(self, service: str) -> str:
        directory = self.directory / service
        directory.mkdir()
        return self._cleanup.enter_context(open_lock_service(service, directory))

    def _away(self, service: str, distance: float) -> str:
        near = urlsplit(self.url(service))
        assert near.hostname
        assert near.port
        port = self._cleanup.enter_context(farther(near.hostname, near.port, distance))
        return near._replace(netloc=f"127.0.0.1:{port}").geturl()

    def work(self, service: str) -> ServerWork:
        """Return the work of *service* since its start."""
        told = WORK_OF_SERVICE.get(service)
        return told(self.url(service)) if told else ServerWork()


def redis_work(url: str) -> ServerWork:
    with redis.Redis.from_url(url) as client:
        info: Mapping[str, float] = client.info()
        commands: Mapping[str, Mapping[str, float]] = client.info("commandstats")
    done = sum(each["calls"] for name, each in commands.items() if name != "cmdstat_info")
    cpu = float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
    return ServerWork(info["total_reads_processed"], done, cpu)


def zookeeper_work(url: str) -> ServerWork:
    """Return the packets that ZooKeeper has received. It counts no commands."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(b"mntr")
        said = b""
        while chunk := connection.recv(1 << 16):
            said += chunk
    numbers = dict(line.split("\t", 1) for line in said.decode().splitlines() if "\t" in line)
    return ServerWork(float(numbers["zk_packets_received"]))


def cpu_of_site(stack: Stack) -> float:
    """Return the processor seconds of all processes of all instances."""
    sessions = {str(child.process.pid) for child in stack.instances}
    return cpu_of_processes(stat for stat in process_stats() if stat[SESSION] in sessions)


def cpu_of_group(group: int) -> float:
    """Return the processor seconds of a process group."""
    return cpu_of_processes(stat for stat in process_stats() if stat[GROUP] == str(group))


def cpu_of_database(url: str) -> float:
    """Return the processor seconds of all processes of a PostgreSQL on this machine."""
    with psycopg.connect(url) as connection:
        server = process_stat(connection.info.backend_pid)[PARENT]
        return cpu_of_processes(
            [process_stat(int(server)), *(stat for stat in process_stats() if stat[PARENT] == server)]
        )


def cpu_of_processes(processes: Iterable[list[str]]) -> float:
    return sum(int(ticks) for stat in processes for ticks in stat[TIMES]) / os.sysconf("SC_CLK_TCK")


def process_stats() -> Iterator[list[str]]:
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with suppress(OSError):
            yield process_stat(int(process.name))


def process_stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


WORK_OF_SERVICE = {"redis": redis_work, "zookeeper": zookeeper_work}
