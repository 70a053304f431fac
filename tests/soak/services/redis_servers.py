"""What can be done to Redis: to one server, and to the five of redlock."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis

from loadtest.servers.processes import ChildProcess, free_port
from loadtest.servers.redis_servers import redis_responds, redlock_url
from tests.soak.services.service import IO_TIMEOUT, PAUSES, TTL, Service, Strike, pause

#: Seconds within which a server answers the soak.
PATIENCE = 30.0
#: Appending without fsync survives the end of the process, though not that of the machine.
APPENDING = ("--appendonly", "yes", "--appendfsync", "no")
#: For how many seconds a server is full, or pauses its clients.
FULL, PAUSED = 1.0, 0.3
#: For how many seconds redlock keeps the lock of a process that does not renew it.
LONGEST = 1.01 * TTL + 0.002

Do = Callable[[random.Random], object]


class RedisServer:
    """A Redis server that can be ended and started again, with its data or without."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.port = directory, free_port()
        directory.mkdir(exist_ok=True)
        self.start()

    def start(self, *arguments: str) -> None:
        program = shutil.which("redis-server") or "redis-server"
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command += ["--save", "", *(arguments or ("--appendonly", "no"))]
        self.child = ChildProcess("redis", command, self._directory / "redis.log")
        self.child.wait_until(lambda: redis_responds(self.port))

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=PATIENCE)

    def restart_from_snapshot(self) -> None:
        """End the server in order, and start it with the snapshot that it has written."""
        with self.client() as client, suppress(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "SAVE")
        self.child.process.wait(PATIENCE)
        self.start()
        (self._directory / "dump.rdb").unlink()

    def restart_from_log(self) -> None:
        """Kill the server, and start it with the append-only file that it has written."""
        with self.client() as client:
            client.config_set("appendfsync", "no")
            client.config_set("appendonly", "yes")
            self.child.wait_until(lambda: appends(client))
        self.child.kill()
        self.start(*APPENDING)
        with self.client() as client:
            client.config_set("appendonly", "no")
        shutil.rmtree(self._directory / "appendonlydir")

    def restart_empty(self) -> None:
        self.child.kill()
        self.start()

    def stand_still(self, seconds: float) -> None:
        self.child.freeze()
        try:
            pause(seconds)
        finally:
            self.child.thaw()


def appends(client: redis.Redis) -> bool:
    """Return whether the append-only file is complete: it is switched on, and its base is written."""
    about = client.info("persistence")
    return bool(about["aof_enabled"]) and not (
        about["aof_rewrite_in_progress"] or about["aof_rewrite_scheduled"]
    )


def telling(server: Callable[[random.Random], redis.Redis], *words: str) -> Do:
    """Return what tells a command to the server that is drawn."""

    def do(choices: random.Random) -> None:
        with server(choices) as client, suppress(redis.RedisError):
            client.execute_command(*words)

    return do


def kill_one_client(client: redis.Redis, choices: random.Random) -> None:
    with suppress(redis.RedisError):
        others = [one["id"] for one in client.client_list() if one["cmd"] != "client|list"]
        if others:
            client.client_kill_filter(_id=choices.choice(others))


def fill(client: redis.Redis, policy: str) -> None:
    """Let the server have no memory left for a while."""
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", "1")
    try:
        threading.Event().wait(FULL)
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


def commands(server: Callable[[random.Random], redis.Redis]) -> tuple[Strike, ...]:
    """Return what a command can do to the server that *server* draws."""

    def kill_one(choices: random.Random) -> None:
        with server(choices) as client:
            kill_one_client(client, choices)

    def fill_one(choices: random.Random) -> None:
        with server(choices) as client:
            fill(client, "noeviction")

    return (
        Strike("CLIENT KILL", kill_one),
        Strike("CLIENT KILL TYPE pubsub", telling(server, "CLIENT", "KILL", "TYPE", "pubsub"), skips=True),
        Strike("CLIENT KILL TYPE normal", telling(server, "CLIENT", "KILL", "TYPE", "normal")),
        Strike("SCRIPT FLUSH", telling(server, "SCRIPT", "FLUSH")),
        Strike("CLIENT PAUSE", telling(server, "CLIENT", "PAUSE", str(int(PAUSED * 1000))), lasts=PAUSED),
        Strike("full memory", fill_one),
    )


def losing_commands(server: Callable[[random.Random], redis.Redis]) -> tuple[Strike, ...]:
    """Return the commands after which the server that *server* draws has lost its locks."""

    def evict(choices: random.Random) -> None:
        with server(choices) as client:
            fill(client, "allkeys-lru")

    return (
        Strike("FLUSHALL", telling(server, "FLUSHALL"), forgets=True),
        Strike("eviction", evict, forgets=True),
    )


def restarts(server: Callable[[random.Random], RedisServer]) -> tuple[Strike, ...]:
    """Return the restarts of the server that *server* draws, which keep all data."""
    return (
        Strike(
            "server stopped",
            lambda choices: server(choices).stand_still(choices.choice(PAUSES)),
            lasts_if_late=IO_TIMEOUT + TTL,
            skips=True,
        ),
        Strike(
            "restart from snapshot",
            lambda choices: server(choices).restart_from_snapshot(),
            skips=True,
        ),
        Strike(
            "restart from log",
            lambda choices: server(choices).restart_from_log(),
            skips=True,
        ),
    )


def losing_restart(server: Callable[[random.Random], RedisServer]) -> Strike:
    return Strike(
        "restart without data",
        lambda choices: server(choices).restart_empty(),
        forgets=True,
        skips=True,
    )


@contextmanager
def open_redis(directory: Path) -> Iterator[Service]:
    server = RedisServer(directory)
    try:
        yield Service(
            f"redis://127.0.0.1:{server.port}/0",
            commands(lambda _: server.client()) + restarts(lambda _: server),
            (*losing_commands(lambda _: server.client()), losing_restart(lambda _: server)),
        )
    finally:
        server.child.stop()


@contextmanager
def open_redlock(directory: Path) -> Iterator[Service]:
    """Start five servers. What strikes one of them leaves a majority; two may be struck at once, too."""
    with ExitStack() as stop:
        servers = []
        for number in range(5):
            servers.append(RedisServer(directory / f"redis-{number}"))
            stop.callback(lambda server=servers[-1]: server.child.stop())

        def one(choices: random.Random) -> RedisServer:
            return choices.choice(servers)

        def one_client(choices: random.Random) -> redis.Redis:
            return one(choices).client()

        def kill_two(choices: random.Random) -> None:
            two = choices.sample(servers, 2)
            for server in two:
                with server.client() as client:
                    client.config_set("appendfsync", "no")
                    client.config_set("appendonly", "yes")
                    server.child.wait_until(lambda client=client: appends(client))
            for server in two:
                server.child.kill()
            pause(choices.choice(PAUSES))
            for server in two:
                server.start(*APPENDING)

        yield Service(
            redlock_url(server.port for server in servers),
            (
                *commands(one_client),
                *restarts(one),
                Strike("two killed", kill_two, skips=True),
            ),
            (*losing_commands(one_client), losing_restart(one)),
            killed=LONGEST,
            stopped=LONGEST,
        )
