"""Three ZooKeeper servers that elect a leader: on free ports of the loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from loadtest.child import Child
from loadtest.ports import free_port
from loadtest.zookeeper import SETTINGS, ask, command, zookeeper_answers

#: A follower may take so many ticks to come up to date, and to answer.
LIMITS = "initLimit=20\nsyncLimit=5\n"


class Ensemble:
    def __init__(self, servers: dict[int, Child]) -> None:
        #: By the port that clients connect to.
        self.servers = servers

    @property
    def url(self) -> str:
        return f"zookeeper://{','.join(f'127.0.0.1:{port}' for port in self.servers)}/locks"

    def leader(self) -> Child:
        return next(child for port, child in self.servers.items() if b"Mode: leader" in ask(port, b"srvr"))


@contextlib.contextmanager
def open_ensemble(directory: Path) -> Iterator[Ensemble]:
    peers = "".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in range(1, 4))
    with contextlib.ExitStack() as stop:
        servers: dict[int, Child] = {}
        for number in range(1, 4):
            port, own = free_port(), directory / f"zookeeper-{number}"
            (own / "data").mkdir(parents=True)
            (own / "data" / "myid").write_text(str(number), encoding="ascii")
            settings = own / "zookeeper.cfg"
            settings.write_text(SETTINGS.format(data=own / "data", port=port) + LIMITS + peers)
            servers[port] = Child("ZooKeeper", command(settings), directory / f"zookeeper-{number}.log")
            stop.callback(servers[port].stop)
        for port, child in servers.items():
            child.wait_until(lambda port=port: zookeeper_answers(port))  # type: ignore[misc]
        yield Ensemble(servers)
