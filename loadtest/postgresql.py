"""A private PostgreSQL: a new cluster on a free port of the loopback, gone in the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadtest.child import Child, StackError, run_once
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


@contextlib.contextmanager
def running_postgresql(options: Mapping[str, str] = OPTIONS) -> Iterator[str]:
    """The URL of a database ``shop`` that belongs to the superuser ``shop``."""
    binaries, account = find_binaries(), find_account()
    with home_of(account) as home:
        data, log, port = home / "data", home / "log", free_port()
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "shop", "-A", "trust", "-E", "UTF8", "-N"]
        run_once("PostgreSQL's initdb", initdb, log, account)
        given = [f"-c{name}={value}" for name, value in options.items()]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), *given]
        # SIGINT: don't wait until every client has gone.
        server = Child("PostgreSQL", command, log, account=account, stop_with=signal.SIGINT)
        try:
            server.wait_until(lambda: is_ready(binaries, port))
            createdb = [str(binaries / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "shop", "shop"]
            run_once("PostgreSQL's createdb", createdb, log, account)
            yield f"postgresql://shop@127.0.0.1:{port}/shop"
        finally:
            server.stop()


def is_ready(binaries: Path, port: int) -> bool:
    """Its port is open before it lets anybody in."""
    asked = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(asked, check=False).returncode == 0
