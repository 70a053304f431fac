"""A real PgBouncer before a PostgreSQL server of the tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import make_url

from loadtest.servers.processes import ChildProcess, find_account, free_port, home_of, listens

SETTINGS = """\
[databases]
* = host=127.0.0.1 port={target}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {home}/users
pool_mode = {mode}
default_pool_size = {size}
"""


@contextmanager
def pgbouncer(url: str, mode: str = "transaction", size: int = 4) -> Iterator[str]:
    """Yield the URL of a PgBouncer before the server at *url*. It has *size* connections to a database."""
    command = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not command:
        pytest.fail("PgBouncer is not installed: apt-get install pgbouncer")
    account, port, server = find_account(), free_port(), make_url(url)
    with home_of(account) as home:
        settings = SETTINGS.format(target=server.port, port=port, home=home, mode=mode, size=size)
        (home / "pgbouncer.ini").write_text(settings)
        (home / "users").write_text(f'"{server.username}" ""\n')
        child = ChildProcess(
            "PgBouncer", [command, str(home / "pgbouncer.ini")], home / "log", account=account
        )
        try:
            child.wait_until(lambda: listens(port))
            yield server.set(port=port).render_as_string(hide_password=False)
        finally:
            child.stop()
