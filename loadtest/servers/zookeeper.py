"""Private ZooKeeper servers on free ports of the loopback: one, or three that elect a leader."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from loadtest.servers.processes import ChildProcess, StackError, free_port

#: The server in Debian's package, whose manifest names the jars that it needs; and the jar for its log.
JARS = ("/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar")
#: A small heap, and only the quick compiler, because the better compiler needs longer runs to pay off.
JAVA = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
QUORUM_PEER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Sessions live for 1 to 120 seconds. No write is forced to disk, because the data is useless after the run.
ZOOKEEPER_SETTINGS = """\
tickTime=500
maxSessionTimeout=120000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr
forceSync=no
"""


@contextlib.contextmanager
def open_zookeeper(directory: Path) -> Iterator[str]:
    """Start a server that keeps its data in *directory*, and yield its URL."""
    port, settings = free_port(), directory / "zookeeper.cfg"
    settings.write_text(ZOOKEEPER_SETTINGS.format(data=directory / "zookeeper", port=port), encoding="utf-8")
    child = ChildProcess("ZooKeeper", zookeeper_command(settings), directory / "zookeeper.log")
    try:
        child.wait_until(lambda: zookeeper_answers(port))
        yield f"zookeeper://127.0.0.1:{port}/locks"
    finally:
        child.stop()


def zookeeper_command(settings: Path) -> list[str]:
    """Return the command that starts a server with the file *settings*."""
    java = shutil.which("java")
    if not java or not all(Path(jar).exists() for jar in JARS):
        raise StackError(
            "ZooKeeper is not installed. Run: apt-get install libzookeeper-java default-jre-headless, or "
            "scripts/demo."
        )
    return [java, *JAVA, LOG_LEVEL, "-cp", ":".join(JARS), QUORUM_PEER, str(settings)]


def zookeeper_answers(port: int) -> bool:
    """Return whether the server is ready. A client that asks earlier may never get an answer."""
    return ask(port, b"srvr").startswith(b"Zookeeper version")


def ask(port: int, word: bytes) -> bytes:
    """Return the answer to a command of four letters; b"" if none comes."""
    said = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=0.2) as connection,
    ):
        connection.sendall(word)
        while chunk := connection.recv(4096):
            said += chunk
    return said


#: How many ticks a follower may take to catch up, and to answer.
ENSEMBLE_LIMITS = "initLimit=20\nsyncLimit=5\n"


class Ensemble:
    """Three servers that elect a leader."""

    def __init__(self, servers: dict[int, ChildProcess]) -> None:
        #: The servers by the port that clients connect to.
        self.servers = servers

    @property
    def url(self) -> str:
        return f"zookeeper://{','.join(f'127.0.0.1:{port}' for port in self.servers)}/locks"

    def leader(self) -> ChildProcess:
        return next(child for port, child in self.servers.items() if b"Mode: leader" in ask(port, b"srvr"))


@contextlib.contextmanager
def open_ensemble(directory: Path) -> Iterator[Ensemble]:
    peers = "".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in range(1, 4))
    with contextlib.ExitStack() as stop:
        servers: dict[int, ChildProcess] = {}
        for number in range(1, 4):
            port, own = free_port(), directory / f"zookeeper-{number}"
            (own / "data").mkdir(parents=True)
            (own / "data" / "myid").write_text(str(number), encoding="ascii")
            settings = own / "zookeeper.cfg"
            settings.write_text(
                ZOOKEEPER_SETTINGS.format(data=own / "data", port=port) + ENSEMBLE_LIMITS + peers
            )
            servers[port] = ChildProcess(
                "ZooKeeper", zookeeper_command(settings), directory / f"zookeeper-{number}.log"
            )
            stop.callback(servers[port].stop)
        for port, child in servers.items():
            child.wait_until(lambda port=port: zookeeper_answers(port))  # type: ignore[misc]
        yield Ensemble(servers)
