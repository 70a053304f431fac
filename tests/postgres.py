"""A private PostgreSQL for the tests: a new cluster on a free port of the loopback, gone when they end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = 0


def find_binaries() -> Path:
    """Where Debian keeps the newest server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        raise RuntimeError("The tests need PostgreSQL. Run: apt-get install postgresql")
    return found[-1]


def find_user() -> dict[str, Any]:
    """Who runs it: PostgreSQL refuses to run as root."""
    if os.getuid() != ROOT:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("The tests need a user other than root to run PostgreSQL.")


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running_postgres() -> Iterator[int]:
    """The port of a PostgreSQL with the superuser ``shop`` and the database ``shop``."""
    binaries, user = find_binaries(), find_user()
    home = Path(tempfile.mkdtemp(prefix="distlock-postgres-"))
    try:
        if user:
            os.chown(home, user["user"], user["group"])
        data, port = home / "data", find_port()

        def run(*command: str) -> None:
            # Output goes to a file: the server inherits it, and a pipe would never end.
            with (home / "out").open("ab") as out:
                done = subprocess.run(command, cwd=home, stdout=out, stderr=out, check=False, **user)
            if done.returncode:
                raise RuntimeError(f"{command[0]} failed: {(home / 'out').read_text()[-2000:]}")

        run(str(binaries / "initdb"), "-D", str(data), "-U", "shop", "-A", "trust", "-E", "UTF8", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {home} -c fsync=off -c max_connections=60"
        run(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-o", options, "start")
        try:
            run(str(binaries / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "shop", "shop")
            yield port
        finally:
            run(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
