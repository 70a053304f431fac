"""A private PostgreSQL: a new cluster on a free port of the loopback, gone in the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadtest.child import Account, Child, StackError, run_once
from loadtest.ports import free_port
from loadtest.unprivileged import find_account, home_of

#: Safe only because nobody needs the data after the run, and quick.
OPTIONS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    # The path of a socket has 107 bytes, and a clone may lie deep.
    "unix_socket_directories": "",
    # Each thread of each instance keeps a connection.
    "max_connections": "400",
}


def find_binaries() -> Path:
    """Where Debian keeps the newest server; elsewhere, where the command is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    if command := shutil.which("initdb"):
        return Path(command).resolve().parent
    raise StackError("PostgreSQL is not installed. Run: apt-get install postgresql, or scripts/demo.")


class PostgreSQLServer:
    """A cluster in *home*, on a port of its own. It can be stopped and started again."""

    def __init__(self, home: Path, account: Account | None, options: Mapping[str, str]) -> None:
        self._binaries, self._account = find_binaries(), account
        self._data, self._log, self.port = home / "data", home / "log", free_port()
        self._given = [f"-c{name}={value}" for name, value in options.items()]
        self._run("initdb", "-D", str(self._data), "-U", "shop", "-A", "trust", "-E", "UTF8", "-N")
        self.url = f"postgresql://shop@127.0.0.1:{self.port}/shop"

    def start(self) -> None:
        where = ["-D", str(self._data), "-p", str(self.port)]
        command = [str(self._binaries / "postgres"), *where, *self._given]
        # SIGINT: don't wait until every client has gone.
        self._server = Child("PostgreSQL", command, self._log, account=self._account, stop_with=signal.SIGINT)
        try:
            self._server.wait_until(lambda: is_ready(self._binaries, self.port))
        except BaseException:
            self.stop()
            raise

    def create_database(self) -> None:
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "shop")

    def stop(self) -> None:
        self._server.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        run_once(f"PostgreSQL's {program}", command, self._log, self._account)


@contextlib.contextmanager
def own_postgresql(options: Mapping[str, str] = OPTIONS) -> Iterator[PostgreSQLServer]:
    """With a database ``shop`` that belongs to the superuser ``shop``."""
    account = find_account()
    with home_of(account) as home:
        server = PostgreSQLServer(home, account, options)
        server.start()
        try:
            server.create_database()
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def running_postgresql(options: Mapping[str, str] = OPTIONS) -> Iterator[str]:
    """The URL of its database."""
    with own_postgresql(options) as server:
        yield server.url


def is_ready(binaries: Path, port: int) -> bool:
    """Its port is open before it lets anybody in."""
    asked = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(asked, check=False).returncode == 0
