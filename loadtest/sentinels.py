"""A Redis server with two replicas, and three sentinels over them: on free ports of the loopback."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from loadtest.child import Child, StackError
from loadtest.ports import free_port

#: What the sentinels call the primary.
NAME = "shop"
#: A server that is silent for so long is down; a failover takes no longer than the second. Milliseconds.
DOWN_AFTER, FAILOVER_TIMEOUT = 5000, 3000
SERVER = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
SETTINGS = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel myid {id}
sentinel monitor {name} 127.0.0.1 {primary} 2
sentinel down-after-milliseconds {name} {down_after}
sentinel failover-timeout {name} {failover_timeout}
sentinel parallel-syncs {name} 2
"""


class Watched:
    """The servers and the sentinels, by their ports. They end with `stop`."""

    def __init__(self, directory: Path, *arguments: str, down_after: int = DOWN_AFTER) -> None:
        """*arguments*: of each ``redis-server``. *down_after*: see `DOWN_AFTER`."""
        self._program = shutil.which("redis-server") or ""
        if not self._program:
            raise StackError(
                "redis-server is not installed. Run: apt-get install redis-server, or scripts/demo."
            )
        self._directory = directory
        self._arguments = arguments
        self._down_after = down_after
        self.servers: dict[int, Child] = {}
        self.sentinels: dict[int, Child] = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}/0"

    def primary(self) -> int:
        """The port of the one that a sentinel that lives calls so."""
        for port, child in self.sentinels.items():
            if child.process.poll() is None:
                said = tell(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME).split("\r\n")
                return int(said[4])
        raise StackError("No sentinel lives.")

    def replicas(self) -> list[int]:
        """The ports of the servers that live and follow the primary."""
        return [port for port in self.living() if _says(port, "slave", "master_link_status:up")]

    def living(self) -> list[int]:
        return [port for port, child in self.servers.items() if child.process.poll() is None]

    def notice(self, within: int) -> None:
        """Have the sentinels count as down what is silent for *within* milliseconds."""
        for port in self.sentinels:
            tell(port, "SENTINEL", "SET", NAME, "down-after-milliseconds", str(within))

    def fail_over(self) -> None:
        """Have a replica take the primary's place, which lives."""
        said = tell(next(iter(self.sentinels)), "SENTINEL", "FAILOVER", NAME)
        if not said.startswith("+OK"):
            raise StackError(f"The sentinels begin no failover: {said}")

    def stop(self) -> None:
        for child in (*self.sentinels.values(), *self.servers.values()):
            child.stop()

    def start_server(self, port: int, primary: int | None = None) -> None:
        """Start it (again), empty."""
        command = [self._program, "--port", str(port), "--dir", str(self._directory), *SERVER]
        if primary is not None:
            command += ["--replicaof", "127.0.0.1", str(primary)]
        log = self._directory / f"redis-{port}.log"
        self.servers[port] = Child("redis", [*command, *self._arguments], log)
        self.servers[port].wait_until(lambda: answers(port))

    def _start(self) -> None:
        first, *others = ports = [free_port() for _ in range(3)]
        for port in ports:
            self.start_server(port, None if port == first else first)
        # A sentinel that asks before the replicas are there asks again ten seconds later.
        self.servers[first].wait_until(lambda: all(port in self.replicas() for port in others))
        known = {free_port(): secrets.token_hex(20) for _ in range(3)}
        for port, own in known.items():
            folder = self._directory / f"sentinel-{port}"
            folder.mkdir()
            settings = SETTINGS.format(
                port=port,
                folder=folder,
                id=own,
                name=NAME,
                primary=first,
                down_after=self._down_after,
                failover_timeout=FAILOVER_TIMEOUT,
            )
            # They would find each other, too, in some seconds.
            settings += "".join(
                f"sentinel known-sentinel {NAME} 127.0.0.1 {other} {its}\n"
                for other, its in known.items()
                if other != port
            )
            file = folder / "sentinel.conf"
            file.write_text(settings, encoding="utf-8")
            command = [self._program, str(file), "--sentinel"]
            self.sentinels[port] = Child("sentinel", command, folder / "sentinel.log")
        for port, child in self.sentinels.items():
            child.wait_until(lambda port=port: knows_all(port))  # type: ignore[misc]


def tell(port: int, *words: str) -> str:
    """What the server at *port* answers, as it comes over the wire; "" if it does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"{' '.join(words)}\r\n".encode())
            # It answers, and then sees that we have nothing more to say. A sentinel knows no QUIT.
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while chunk := connection.recv(65536):
                said += chunk
    except OSError:
        return ""
    return said.decode(errors="replace")


def deafen(primary: int) -> None:
    """Its replicas hear nothing more of what the server at this port is told."""
    for words in (("ACL", "SETUSER", "default", "-psync", "-sync"), ("CLIENT", "KILL", "TYPE", "replica")):
        tell(primary, *words)


def answers(port: int) -> bool:
    return tell(port, "PING").startswith("+PONG")


def knows_all(port: int) -> bool:
    """Whether the sentinel at *port* sees the primary, its replicas and the other sentinels."""
    said = tell(port, "SENTINEL", "CKQUORUM", NAME)
    about = tell(port, "SENTINEL", "MASTER", NAME).split("\r\n")
    counts = {about[at]: about[at + 2] for at in range(2, len(about) - 2, 4)}
    # That a replica follows it hears from the replica, a moment later.
    replicas = tell(port, "SENTINEL", "REPLICAS", NAME)
    followed = replicas.count("master-link-status\r\n$2\r\nok") == 2
    return said.startswith("+OK 3 usable") and counts.get("num-slaves") == "2" and followed


def _says(port: int, *signs: str) -> bool:
    said = tell(port, "INFO", "replication")
    return all(sign in said for sign in signs)


@contextlib.contextmanager
def open_sentinels(directory: Path) -> Iterator[str]:
    """The URL of the primary, by its sentinels."""
    watched = Watched(directory)
    try:
        yield watched.url
    finally:
        watched.stop()
