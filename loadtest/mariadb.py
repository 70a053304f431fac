"""A private MariaDB: new data on a free port of the loopback, gone in the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtest.child import Account, Child, StackError, run_once
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
USERS = """\
CREATE DATABASE IF NOT EXISTS shop;
CREATE USER IF NOT EXISTS shop@'%';
GRANT ALL ON *.* TO shop@'%' WITH GRANT OPTION;
"""


def find(command: str) -> str:
    found = shutil.which(command) or shutil.which(command, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StackError(
            f"MariaDB's {command} is not installed. "
            "Run: apt-get install mariadb-server-core mariadb-client-core, or scripts/demo."
        )
    return found


class MariaDBServer:
    """In *home*, on a port of its own. It can be stopped and started again."""

    def __init__(self, home: Path, account: Account | None, options: Sequence[str]) -> None:
        install, self._command = find("mariadb-install-db"), find("mariadbd")
        find("my_print_defaults")  # which the installation needs, and which is in another package
        self._account, self._log, self.port = account, home / "log", free_port()
        users = home / "users.sql"
        users.write_text(USERS)
        # --no-defaults: this machine may have a MariaDB of its own, with settings of its own.
        # --tmpdir: one that starts clears the temporary tables there away, be they another server's.
        places = ("--no-defaults", f"--datadir={home / 'data'}", f"--tmpdir={home}")
        normal = "--auth-root-authentication-method=normal"
        asked = [install, *places, "--skip-test-db", normal]
        run_once("MariaDB's installation", asked, self._log, account)
        self._given = [*places, f"--port={self.port}", *options, f"--init-file={users}"]
        self.url = f"mysql://shop@127.0.0.1:{self.port}/shop?{WITHOUT_TLS}"

    def start(self) -> None:
        # SIGKILL: an orderly end takes seconds, for data that nobody needs.
        self._server = Child(
            "MariaDB",
            [self._command, *self._given],
            self._log,
            account=self._account,
            stop_with=signal.SIGKILL,
        )
        try:
            # It listens only after its init file was run.
            self._server.wait_until(lambda: listens(self.port))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._server.stop()

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def own_mariadb(options: Sequence[str] = OPTIONS) -> Iterator[MariaDBServer]:
    """With a database ``shop``, whose user ``shop`` may do everything."""
    account = find_account()
    with home_of(account) as home:
        server = MariaDBServer(home, account, options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def running_mariadb() -> Iterator[str]:
    """The URL of its database."""
    with own_mariadb() as server:
        yield server.url
