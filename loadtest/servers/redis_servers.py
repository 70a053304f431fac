"""Private Redis servers on free ports of the loopback: one, five for redlock, or three below sentinels."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from loadtest.servers.processes import ChildProcess, StackError, free_port


@contextlib.contextmanager
def running_redis(directory: Path) -> Iterator[tuple[ChildProcess, int]]:
    """Start a server that keeps its files in *directory*; yield it and its port."""
    server = shutil.which("redis-server")
    if not server:
        raise StackError("redis-server is not installed. Run: apt-get install redis-server, or scripts/demo.")
    port = free_port()
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    child = ChildProcess("redis", [*command, "--save", "", "--appendonly", "no"], directory / "redis.log")
    try:
        child.wait_until(lambda: redis_answers(port))
        yield child, port
    finally:
        child.stop()


def redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False


@contextlib.contextmanager
def running_redlock(directory: Path) -> Iterator[dict[int, ChildProcess]]:
    """Start five servers that know nothing of each other; yield them by their ports."""
    with contextlib.ExitStack() as stop:
        servers = {}
        for number in range(1, 6):
            own = directory / f"redlock-{number}"
            own.mkdir()
            child, port = stop.enter_context(running_redis(own))
            servers[port] = child
        yield servers


def redlock_url(ports: Iterable[int]) -> str:
    return f"redlock://{','.join(f'127.0.0.1:{port}' for port in ports)}/0"


#: The sentinels' name for the primary.
PRIMARY_NAME = "shop"
#: After how many milliseconds of silence a server counts as down, and how long a failover takes at most.
DOWN_AFTER, FAILOVER_TIMEOUT = 5000, 3000
REPLICATED = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
SENTINEL_SETTINGS = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel myid {id}
sentinel monitor {name} 127.0.0.1 {primary} 2
sentinel down-after-milliseconds {name} {down_after}
sentinel failover-timeout {name} {failover_timeout}
sentinel parallel-syncs {name} 2
"""


class WatchedRedis:
    """A Redis server with two replicas, and three sentinels over them, by their ports. `stop` ends them."""

    def __init__(self, directory: Path, *arguments: str, down_after: int = DOWN_AFTER) -> None:
        """Start all servers. *arguments*: for each ``redis-server``. *down_after*: see `DOWN_AFTER`."""
        self._program = shutil.which("redis-server") or ""
        if not self._program:
            raise StackError(
                "redis-server is not installed. Run: apt-get install redis-server, or scripts/demo."
            )
        self._directory = directory
        self._arguments = arguments
        self._down_after = down_after
        self.servers: dict[int, ChildProcess] = {}
        self.sentinels: dict[int, ChildProcess] = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/{PRIMARY_NAME}/0"

    def primary(self) -> int:
        """Return the primary's port, according to a living sentinel."""
        for port, child in self.sentinels.items():
            if child.process.poll() is None:
                said = tell(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME).split("\r\n")
                return int(said[4])
        raise StackError("No sentinel lives.")

    def replicas(self) -> list[int]:
        """Return the ports of the living servers that follow the primary."""
        return [port for port in self.living() if _replication_says(port, "slave", "master_link_status:up")]

    def living(self) -> list[int]:
        return [port for port, child in self.servers.items() if child.process.poll() is None]

    def notice(self, within: int) -> None:
        """Make the sentinels take a server for down after *within* milliseconds of silence."""
        for port in self.sentinels:
            tell(port, "SENTINEL", "SET", PRIMARY_NAME, "down-after-milliseconds", str(within))

    def fail_over(self) -> None:
        """Let a replica take the place of the primary, which goes on running."""
        said = tell(next(iter(self.sentinels)), "SENTINEL", "FAILOVER", PRIMARY_NAME)
        if not said.startswith("+OK"):
            raise StackError(f"The sentinels begin no failover: {said}")

    def stop(self) -> None:
        for child in (*self.sentinels.values(), *self.servers.values()):
            child.stop()

    def start_server(self, port: int, primary: int | None = None) -> None:
        """Start an empty server on *port*, for the first time or again."""
        command = [self._program, "--port", str(port), "--dir", str(self._directory), *REPLICATED]
        if primary is not None:
            command += ["--replicaof", "127.0.0.1", str(primary)]
        log = self._directory / f"redis-{port}.log"
        self.servers[port] = ChildProcess("redis", [*command, *self._arguments], log)
        self.servers[port].wait_until(lambda: redis_responds(port))

    def _start(self) -> None:
        first, *others = ports = [free_port() for _ in range(3)]
        for port in ports:
            self.start_server(port, None if port == first else first)
        # A sentinel that asks before the replicas are known asks again only ten seconds later.
        self.servers[first].wait_until(lambda: all(port in self.replicas() for port in others))
        known = {free_port(): secrets.token_hex(20) for _ in range(3)}
        for port, own in known.items():
            folder = self._directory / f"sentinel-{port}"
            folder.mkdir()
            settings = SENTINEL_SETTINGS.format(
                port=port,
                folder=folder,
                id=own,
                name=PRIMARY_NAME,
                primary=first,
                down_after=self._down_after,
                failover_timeout=FAILOVER_TIMEOUT,
            )
            # Without this, the sentinels would find each other only after some seconds.
            settings += "".join(
                f"sentinel known-sentinel {PRIMARY_NAME} 127.0.0.1 {other} {its}\n"
                for other, its in known.items()
                if other != port
            )
            file = folder / "sentinel.conf"
            file.write_text(settings, encoding="utf-8")
            command = [self._program, str(file), "--sentinel"]
            self.sentinels[port] = ChildProcess("sentinel", command, folder / "sentinel.log")
        for port, child in self.sentinels.items():
            child.wait_until(lambda port=port: knows_all(port))  # type: ignore[misc]


def tell(port: int, *words: str) -> str:
    """Send a command to *port*, and return the raw answer; "" if none comes."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"{' '.join(words)}\r\n".encode())
            # The server answers, sees the end of our requests, and hangs up. A sentinel does not know QUIT.
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while chunk := connection.recv(65536):
                said += chunk
    except OSError:
        return ""
    return said.decode(errors="replace")


def deafen(primary: int) -> None:
    """Cut off the server at the port *primary* from its replicas."""
    for words in (("ACL", "SETUSER", "default", "-psync", "-sync"), ("CLIENT", "KILL", "TYPE", "replica")):
        tell(primary, *words)


def redis_responds(port: int) -> bool:
    return tell(port, "PING").startswith("+PONG")


def knows_all(port: int) -> bool:
    """Return whether the sentinel at *port* sees the primary, its replicas and the other sentinels."""
    said = tell(port, "SENTINEL", "CKQUORUM", PRIMARY_NAME)
    about = tell(port, "SENTINEL", "MASTER", PRIMARY_NAME).split("\r\n")
    counts = {about[at]: about[at + 2] for at in range(2, len(about) - 2, 4)}
    # The sentinel learns a moment later, from the replica, that the replica follows.
    replicas = tell(port, "SENTINEL", "REPLICAS", PRIMARY_NAME)
    followed = replicas.count("master-link-status\r\n$2\r\nok") == 2
    return said.startswith("+OK 3 usable") and counts.get("num-slaves") == "2" and followed


def _replication_says(port: int, *signs: str) -> bool:
    said = tell(port, "INFO", "replication")
    return all(sign in said for sign in signs)


@contextlib.contextmanager
def open_sentinels(directory: Path) -> Iterator[str]:
    """Start a `WatchedRedis`, and yield the URL of its primary, which names the sentinels."""
    watched = WatchedRedis(directory)
    try:
        yield watched.url
    finally:
        watched.stop()
