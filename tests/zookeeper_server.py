"""A real ZooKeeper server for the tests: private, on a free port of the loopback, gone when the tests are."""

from __future__ import annotations

import logging
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler

from loadtest.servers.processes import free_port
from tests.redis_server import PATIENCE, eventually, stand_still
from tests.stored import FOLDER, lock_path

#: Where Debian's package has the server; its manifest names the jars that it needs. The other is its log.
JARS = ("/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar")
#: A small heap, and no compiler that takes longer than the tests to pay off.
JAVA = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Sessions end within a tick. Containers are left to us: the server looks for empty ones too late to help.
SETTINGS = """\
tickTime=100
minSessionTimeout=200
maxSessionTimeout=120000
dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
forceSync=no
"""
CHROOT = "/tests"
#: The log of the clients that look at servers: tests read that of distlock.
SILENT = logging.getLogger("tests.zookeeper_server")
SILENT.propagate = False
SILENT.addHandler(logging.NullHandler())


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler opens a descriptor for each `select`, and the tests count the open descriptors."""

    def select(self, *args: Any, **more: Any) -> tuple[list[Any], list[Any], list[Any]]:
        return select.select(*args, **more)


class ZooKeeperServer:
    """One server. What it saved survives `restart`. *properties* are Java's: ``-Dname=value``."""

    jars = JARS
    #: The logins of the client that looks at the server from outside.
    admin_login: Sequence[tuple[str, str]] = ()

    def __init__(self, *properties: str, **settings: object) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="distlock-zookeeper-"))
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        text = SETTINGS.format(folder=self.folder, port=self.port) + lines
        (self.folder / "zoo.cfg").write_text(text, encoding="ascii")
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False
        #: Looks at the server from outside.
        self.admin = self._new_admin()

    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}{CHROOT}"

    def start(self) -> None:
        self.launch()
        self.wait()

    def launch(self) -> None:
        command = [
            *JAVA,
            *self._properties,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            ":".join(self.jars),
            SERVER,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, str(self.folder / "zoo.cfg")], stdout=log, stderr=log)

    def wait(self) -> None:
        eventually(self._answers, f"ZooKeeper answers on port {self.port}")
        if not self._started:
            self._started = True
            self.admin.start_async()
        eventually(lambda: self.admin.connected, "the test is connected")

    def tell(self, word: str, patience: float = PATIENCE) -> str:
        """The answer to one of the four-letter words."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            connection.sendall(word.encode())
            with connection.makefile(encoding="utf-8") as answer:
                return answer.read()

    def children(self, key: str) -> list[str]:
        """The nodes in line for *key*, the first one first."""
        path = lock_path(f"{CHROOT}/{FOLDER}", key)
        try:
            return sorted(self.admin.get_children(path), key=lambda name: name[-10:])
        except NoNodeError:  # an empty folder may be taken away at any time
            return []

    def locks(self) -> list[str]:
        """The nodes of locks, used or not."""
        path = f"{CHROOT}/{FOLDER}"
        names: list[str] = self.admin.get_children(path) if self.admin.exists(path) else []
        return names

    def watches(self) -> int:
        """How many watches there are, of all kinds and clients."""
        counts = dict(line.split("\t", 1) for line in self.tell("mntr").splitlines() if "\t" in line)
        return int(counts["zk_watch_count"])

    def pause(self) -> None:
        """Let it hang: it accepts connections and answers nothing."""
        assert self._process is not None
        stand_still(self._process)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.end()
        self.start()

    def forget(self) -> None:
        """Kill it, and start it without what it saved."""
        self.end()
        shutil.rmtree(self.folder / "data")
        self.start()

    def end(self) -> None:
        """Kill it, and have `start` connect another client that looks at it, once the server answers.

        A client that reconnects by itself may come too early: then it gets no answer for its session timeout.
        """
        self.admin.stop()
        self.admin.close()
        self.kill()
        self.admin, self._started = self._new_admin(), False

    def close(self) -> None:
        # In this order: it would wait for a server that is gone.
        self.admin.stop()
        self.admin.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _new_admin(self) -> KazooClient:
        return KazooClient(
            f"127.0.0.1:{self.port}",
            timeout=60.0,
            connection_retry={"max_tries": -1, "delay": 0.02, "backoff": 2, "max_delay": 0.5},
            auth_data=self.admin_login,
            handler=_Handler(),
            logger=SILENT,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text(encoding="utf-8"))
        try:
            # It may never answer a question that comes too early.
            return self.tell("srvr", patience=0.2).startswith("Zookeeper version")
        except OSError:
            return False

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def running(*properties: str, **settings: object) -> Generator[ZooKeeperServer]:
    """For fixtures: ``yield from running()``."""
    if not all(Path(jar).exists() for jar in JARS):
        pytest.fail("ZooKeeper is not installed: apt-get install libzookeeper-java default-jre-headless")
    server = ZooKeeperServer(*properties, **settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """One server for all tests that leave it as they found it."""
    yield from running()


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A server that the test may stop and kill."""
    yield from running()
