"""The servers of a run, each started when it is asked for first; and what they say of their own work."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import redis

from bench.delay import farther
from loadtest.servers.lock_services import open_lock_service
from loadtest.servers.processes import workspace


@dataclass(frozen=True, slots=True)
class Work:
    """What a server has done so far, or between two moments."""

    #: What reached it: a script, and all that is sent with it at once, is one.
    requests: float = 0.0
    #: What it carried out, those inside scripts included.
    commands: float = 0.0
    #: Seconds.
    cpu: float = 0.0

    def __sub__(self, before: Work) -> Work:
        return Work(self.requests - before.requests, self.commands - before.commands, self.cpu - before.cpu)


class Services:
    """Started by ``with``; ended, with everything that it started, by leaving it."""

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
        """Where *service* is, *distance* seconds of round-trip time farther away than the loopback."""
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

    def work(self, service: str) -> Work:
        """What *service* has done since it was started."""
        told = WORK.get(service)
        return told(self.url(service)) if told else Work()


def redis_work(url: str) -> Work:
    with redis.Redis.from_url(url) as client:
        info: Mapping[str, float] = client.info()
        commands: Mapping[str, Mapping[str, float]] = client.info("commandstats")
    done = sum(each["calls"] for name, each in commands.items() if name != "cmdstat_info")
    cpu = float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
    return Work(info["total_reads_processed"], done, cpu)


def zookeeper_work(url: str) -> Work:
    """A packet to it is a request; what it writes is not told apart."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(b"mntr")
        said = b""
        while chunk := connection.recv(1 << 16):
            said += chunk
    numbers = dict(line.split("\t", 1) for line in said.decode().splitlines() if "\t" in line)
    return Work(float(numbers["zk_packets_received"]))


WORK = {"redis": redis_work, "zookeeper": zookeeper_work}
