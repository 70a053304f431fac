"""What can be done to ZooKeeper: to one server, and to three that elect a leader."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.servers.processes import ChildProcess, free_port
from loadtest.servers.zookeeper import (
    ZOOKEEPER_SETTINGS,
    ask,
    open_ensemble,
    zookeeper_answers,
    zookeeper_command,
)
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
            lasts=IO_TIMEOUT + SESSION,
            skips=True,
        ),
        Strike(
            f"{which} restarted",
            lambda choices: server(choices).restart(),
            lasts=IO_TIMEOUT + SESSION,
            skips=True,
        ),
    )


@contextmanager
def open_zookeeper(directory: Path) -> Iterator[Service]:
    port, data, settings = free_port(), directory / "data", directory / "zookeeper.cfg"
    settings.write_text(ZOOKEEPER_SETTINGS.format(data=data, port=port))
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
        yield Service(f"zookeeper://127.0.0.1:{port}/locks", outages(lambda _: server, "server"), (empty,))
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
                direct=f"zookeeper://127.0.0.1:{servers[0].port}/locks",
            )
        finally:
            for server in servers:
                server.child.stop()
