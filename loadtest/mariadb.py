"""A private MariaDB: new data on a free port of the loopback, gone in the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator

from loadtest.child import Child, StackError, run_once
from loadtest.ports import free_port, listens
from loadtest.unprivileged import find_account, home_of

#: Safe only because nobody needs the data after the run, and quick.
OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--socket=mariadb.sock",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=32M",
    # Each thread of each instance keeps a connection.
    "--max-connections=400",
)
#: It has no TLS. PyMySQL would get ready for it, and load this machine's certificates for each connection.
WITHOUT_TLS = "ssl_disabled=true"
#: One statement for each line: the server reads the file so.
USERS = "CREATE DATABASE shop;\nCREATE USER shop@'%';\nGRANT ALL ON *.* TO shop@'%' WITH GRANT OPTION;\n"


def find(command: str) -> str:
    found = shutil.which(command) or shutil.which(command, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StackError(
            f"MariaDB's {command} is not installed. "
            "Run: apt-get install mariadb-server-core mariadb-client-core, or scripts/demo."
        )
    return found


@contextlib.contextmanager
def running_mariadb() -> Iterator[str]:
    """The URL of a database ``shop``; its user ``shop`` may do everything."""
    install, server_command, account = find("mariadb-install-db"), find("mariadbd"), find_account()
    find("my_print_defaults")  # which the installation needs, and which is in another package
    with home_of(account) as home:
        data, log, users, port = home / "data", home / "log", home / "users.sql", free_port()
        users.write_text(USERS)
        # --no-defaults: this machine may have a MariaDB of its own, with settings of its own.
        # --tmpdir: one that starts clears the temporary tables there away, be they another server's.
        places = ("--no-defaults", f"--datadir={data}", f"--tmpdir={home}")
        normal = "--auth-root-authentication-method=normal"
        run_once("MariaDB's installation", [install, *places, "--skip-test-db", normal], log, account)
        command = [server_command, *places, f"--port={port}", *OPTIONS]
        # SIGKILL: an orderly end takes seconds, for data that nobody needs.
        command += [f"--init-file={users}"]
        server = Child("MariaDB", command, log, account=account, stop_with=signal.SIGKILL)
        try:
            # It listens only after its init file was run.
            server.wait_until(lambda: listens(port))
            yield f"mysql://shop@127.0.0.1:{port}/shop?{WITHOUT_TLS}"
        finally:
            server.stop()
