"""The database of a run: a file, a private PostgreSQL or MariaDB, or a server that runs already."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loadtest.servers.processes import (
    Account,
    ChildProcess,
    StackError,
    find_account,
    free_port,
    home_of,
    listens,
    run_once,
)

#: These settings are quick, and safe only because nobody needs the data after the run.
POSTGRESQL_OPTIONS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    # There is no Unix socket, because its path has at most 107 bytes, and a clone may be nested deeply.
    "unix_socket_directories": "",
    # Each thread of each instance keeps a connection.
    "max_connections": "400",
}


def find_postgresql() -> Path:
    """Return the directory of the newest server's programs on Debian; elsewhere, that of ``initdb``."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    if command := shutil.which("initdb"):
        return Path(command).resolve().parent
    raise StackError("PostgreSQL is not installed. Run: apt-get install postgresql, or scripts/demo.")


class PostgreSQLServer:
    """A PostgreSQL server with its data in *home*, on its own port. It can be stopped and started again.

    *primary*: the port of the server whose standby this one is, with asynchronous replication.
    """

    def __init__(
        self, home: Path, account: Account | None, options: Mapping[str, str], primary: int = 0
    ) -> None:
        self._binaries, self._account = find_postgresql(), account
        self._data, self._log, self.port = home / "data", home / "log", free_port()
        self._given = [f"-c{name}={value}" for name, value in options.items()]
        if primary:
            copied = ["-D", str(self._data), "--write-recovery-conf", "--checkpoint=fast", "-N"]
            self._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary), "-U", "shop", *copied)
        else:
            self._run("initdb", "-D", str(self._data), "-U", "shop", "-A", "trust", "-E", "UTF8", "-N")
        self.url = f"postgresql://shop@127.0.0.1:{self.port}/shop"

    def start(self) -> None:
        where = ["-D", str(self._data), "-p", str(self.port)]
        command = [str(self._binaries / "postgres"), *where, *self._given]
        # After SIGINT the server does not wait for its clients.
        self._server = ChildProcess(
            "PostgreSQL", command, self._log, account=self._account, stop_with=signal.SIGINT
        )
        try:
            self._server.wait_until(lambda: is_ready(self._binaries, self.port))
        except BaseException:
            self.stop()
            raise

    def create_database(self) -> None:
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "shop")

    def promote(self) -> None:
        """Make a primary of this standby, with what it has received."""
        self._run("pg_ctl", "promote", "-D", str(self._data))

    def stop(self) -> None:
        self._server.stop()

    def crash(self) -> None:
        """Stop at once, as in a crash: neither transactions nor a checkpoint are completed."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", str(self._data))
        self.stop()

    def kill(self) -> None:
        self._server.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        run_once(f"PostgreSQL's {program}", command, self._log, self._account)


@contextlib.contextmanager
def own_postgresql(options: Mapping[str, str] = POSTGRESQL_OPTIONS) -> Iterator[PostgreSQLServer]:
    """Start a server with a database ``shop``, which belongs to the superuser ``shop``."""
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
def standby_of(primary: int) -> Iterator[PostgreSQLServer]:
    """Start a standby of the server on the port *primary*."""
    account = find_account()
    with home_of(account) as home:
        server = PostgreSQLServer(home, account, POSTGRESQL_OPTIONS, primary)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def running_postgresql(options: Mapping[str, str] = POSTGRESQL_OPTIONS) -> Iterator[str]:
    """Start a server, and yield the URL of its database."""
    with own_postgresql(options) as server:
        yield server.url


def is_ready(binaries: Path, port: int) -> bool:
    """Return whether the server accepts clients, which it does only some time after its port is open."""
    asked = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(asked, check=False).returncode == 0


#: These settings are quick, and safe only because nobody needs the data after the run.
MARIADB_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--socket=mariadb.sock",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=32M",
    # Each thread of each instance keeps a connection.
    "--max-connections=400",
)
#: Without this, PyMySQL would load this machine's certificates for each connection. The server has no TLS.
WITHOUT_TLS = "ssl_disabled=true"
#: The server reads one statement from each line.
MARIADB_USERS = """\
CREATE DATABASE IF NOT EXISTS shop;
CREATE USER IF NOT EXISTS shop@'%';
GRANT ALL ON *.* TO shop@'%' WITH GRANT OPTION;
"""


def find_mariadb(command: str) -> str:
    found = shutil.which(command) or shutil.which(command, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StackError(
            f"MariaDB's {command} is not installed. "
            "Run: apt-get install mariadb-server-core mariadb-client-core, or scripts/demo."
        )
    return found


class MariaDBServer:
    """A MariaDB server with its data in *home*, on its own port. It can be stopped and started again."""

    def __init__(self, home: Path, account: Account | None, options: Sequence[str]) -> None:
        install, self._command = find_mariadb("mariadb-install-db"), find_mariadb("mariadbd")
        find_mariadb("my_print_defaults")  # The installation needs this program of another package.
        self._account, self._log, self.port = account, home / "log", free_port()
        users = home / "users.sql"
        users.write_text(MARIADB_USERS)
        # --no-defaults: this machine may have settings for another MariaDB.
        # --tmpdir: a server that starts deletes all temporary tables there, even those of another server.
        places = ("--no-defaults", f"--datadir={home / 'data'}", f"--tmpdir={home}")
        normal = "--auth-root-authentication-method=normal"
        asked = [install, *places, "--skip-test-db", normal]
        run_once("MariaDB's installation", asked, self._log, account)
        self._given = [*places, f"--port={self.port}", *options, f"--init-file={users}"]
        self.url = f"mysql://shop@127.0.0.1:{self.port}/shop?{WITHOUT_TLS}"

    def start(self) -> None:
        # SIGKILL is used because an orderly end takes seconds, and nobody needs the data.
        self._server = ChildProcess(
            "MariaDB",
            [self._command, *self._given],
            self._log,
            account=self._account,
            stop_with=signal.SIGKILL,
        )
        try:
            # The server listens only after it has run its init file.
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
def own_mariadb(options: Sequence[str] = MARIADB_OPTIONS) -> Iterator[MariaDBServer]:
    """Start a server with a database ``shop``, whose user ``shop`` may do everything."""
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
    """Start a server, and yield the URL of its database."""
    with own_mariadb() as server:
        yield server.url


def check_is_ours(url: str) -> None:
    """Raise `StackError` unless the database answers, and has all of our tables or none.

    A sale empties these tables, so tables of another application with their names must not be touched.
    """
    # Import SQLAlchemy here, because the options are read before it is installed.
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    from demo_shop.ledger import database_url
    from demo_shop.tables import Base

    engine = create_engine(database_url(url), poolclass=NullPool)
    try:
        found = set(inspect(engine).get_table_names())
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise StackError(f"the database does not let us in: {reason}") from None
    finally:
        engine.dispose()
    ours = set(Base.metadata.tables)
    if found & ours and not ours <= found:
        theirs = ", ".join(sorted(found & ours))
        raise StackError(f"the database has tables of its own ({theirs}). Give the load test an empty one.")


SERVERS = {"postgresql": running_postgresql, "mariadb": running_mariadb}
DATABASES = ("sqlite", *SERVERS)
SCHEMES = ("sqlite", "postgresql", "mysql", "mariadb")


def kind_of(database: str) -> str:
    """Return the one of `DATABASES` that a name or URL means. Raise ValueError if it means none."""
    scheme, separator, _ = database.partition("://")
    scheme = scheme.partition("+")[0]
    if database in DATABASES:
        return database
    if separator and scheme in SCHEMES:
        return {"mysql": "mariadb"}.get(scheme, scheme)
    urls = ", ".join(f"{scheme}://…" for scheme in SCHEMES)
    raise ValueError(f"there is no database {database!r}; there are: {', '.join(DATABASES)}, and {urls}")


@contextlib.contextmanager
def open_database(database: str, directory: Path) -> Iterator[str]:
    """Yield the URL of *database*, which is one of `DATABASES` or a URL already."""
    if database == "sqlite":
        yield f"sqlite:///{directory / 'shop.sqlite3'}"
    elif database in SERVERS:
        with SERVERS[database]() as url:
            yield url
    else:
        check_is_ours(database)
        yield database
