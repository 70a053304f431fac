"""What can be done to ZooKeeper: to one server, and to three that elect a leader."""

from __future__ import annotations

import random
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loadtest.servers.processes import ChildProcess, free_port
from loadtest.servers.zookeeper import (
    ZOOKEEPER_SETTINGS,
    ask,
    open_ensemble,
    zookeeper_answers,
    zookeeper_command,
)
from tests.soak.services.proxy import Proxy
from tests.soak.services.service import IO_TIMEOUT, PAUSES, TTL, Service, Strike, pause

#: A session lasts this much longer than the ttl, and the server ends it up to a tick later.
SESSION = 1.3 * TTL + 0.5


class ZooKeeperServer:
    """A ZooKeeper server that can be ended and started again, with its data or without."""

    def __init__(self, settings: Path, data: Path, port: int) -> None:
        self._settings, self._data, self.port = settings, data, port

    def start(self) -> None:
        log = self._settings.with_suffix(".log")
        self.child = ChildProcess("ZooKeeper", zookeeper_command(self._settings), log)

    def wait(self) -> None:
        self.child.wait_until(lambda: zookeeper_answers(self.port))

    def restart(self, empties: bool = False) -> None:
        self.child.kill()
        if empties:
            shutil.rmtree(self._data)
        self.start()
        self.wait()

    def stand_still(self, seconds: float) -> None:
        self.child.freeze()
        try:
            pause(seconds)
        finally:
            self.child.thaw()

    def leads(self) -> bool:
        return b"Mode: leader" in ask(self.port, b"srvr")


def outages(server: Callable[[random.Random], ZooKeeperServer], which: str) -> tuple[Strike, ...]:
    """Return the outages of the server that *server* draws, after which it has all its data."""
    return (
        # A server that goes on gives each session its whole time again.
        Strike(
            f"{which} stopped",
            lambda choices: server(choices).stand_still(choices.choice(PAUSES)),
            lasts_if_late=IO_TIMEOUT + SESSION,
            skips=True,
        ),
        Strike(
            f"{which} restarted",
            lambda choices: server(choices).restart(),
            lasts=IO_TIMEOUT + SESSION,
            skips=True,
        ),
    )


#: A reply to a client that connects: length, version, time-out, session and password. A request begins so,
#: too, with the latest transaction that it knows in the second place.
REPLY, REQUEST = struct.Struct(">iiiqi16s"), struct.Struct(">iiqiqi16s?")
#: A request to close the session.
CLOSE = struct.pack(">iii", 8, 1, -11)


def ending_sessions(port: int) -> Callable[[Proxy], tuple[Strike, ...]]:
    """Return what ends a session at the server with *port*, by the password that a proxy has overheard."""

    def of(proxy: Proxy) -> tuple[Strike, ...]:
        def end_one(choices: random.Random) -> None:
            if found := [one for one in proxy.greetings() if len(one) >= REPLY.size]:
                end_session(port, choices.choice(found))

        return (Strike("session ended", end_one, lasts=IO_TIMEOUT, forgets=True),)

    return of


def end_session(port: int, greeting: bytes) -> None:
    """Take over the session that *greeting* is about, and close it."""
    _, _, timeout, session, length, password = REPLY.unpack_from(greeting)
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=IO_TIMEOUT) as connection:
        body = REQUEST.pack(REQUEST.size - 4, 0, 0, timeout, session, length, password, False)
        connection.sendall(body)
        if connection.recv(REPLY.size):
            connection.sendall(CLOSE)
            # The server answers, and hangs up.
            while connection.recv(1024):
                pass


@contextmanager
def open_zookeeper(directory: Path) -> Iterator[Service]:
    port, data, settings = free_port(), directory / "data", directory / "zookeeper.cfg"
    # Each start writes a log and a snapshot. Those of some hours would fill the disk.
    settings.write_text(ZOOKEEPER_SETTINGS.format(data=data, port=port) + "autopurge.purgeInterval=1\n")
    server = ZooKeeperServer(settings, data, port)
    server.start()
    try:
        server.wait()
        empty = Strike(
            "restart without data",
            lambda _: server.restart(empties=True),
            # A client that knows later data is refused, until two sessions could have ended.
            lasts=IO_TIMEOUT + 3 * SESSION,
            forgets=True,
            skips=True,
        )
        yield Service(
            f"zookeeper://127.0.0.1:{port}/locks",
            outages(lambda _: server, "server"),
            (empty,),
            ending_sessions(port),
            killed=SESSION,
            stopped=SESSION,
        )
    finally:
        server.child.stop()


@contextmanager
def open_ensemble_of_three(directory: Path) -> Iterator[Service]:
    with open_ensemble(directory) as ensemble:
        servers = []
        for number, (port, child) in enumerate(ensemble.servers.items(), 1):
            own = directory / f"zookeeper-{number}"
            server = ZooKeeperServer(own / "zookeeper.cfg", own / "data", port)
            server.child = child
            servers.append(server)

        def leader(choices: random.Random) -> ZooKeeperServer:
            return next((one for one in servers if one.leads()), servers[0])

        def follower(choices: random.Random) -> ZooKeeperServer:
            return choices.choice([one for one in servers if one is not leader(choices)])

        try:
            yield Service(
                ensemble.url,
                outages(leader, "leader") + outages(follower, "follower"),
                overheard=ending_sessions(servers[0].port),
                direct=f"zookeeper://127.0.0.1:{servers[0].port}/locks",
                killed=SESSION,
                stopped=SESSION,
            )
        finally:
            for server in servers:
                server.child.stop()
