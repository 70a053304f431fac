"""How a PostgreSQL server is reached: the URL, a connection of libpq, and what errors say."""

from __future__ import annotations

import difflib
import math
import os
import select
import socket
from contextlib import suppress
from urllib.parse import parse_qsl

from psycopg import OperationalError, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGresult

from distlock.backends.sql.dialect import RowMissing, Rows, ServerError, SessionLost
from distlock.clock import now
from distlock.errors import BackendUnavailable, ConfigurationError, LockError

#: How an application_name begins that names our process.
APPLICATION = "distlock"
#: Defaults that the URL may change. The kernel notices a vanished peer, even while nothing is sent.
_DEFAULTS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_MAKE_TABLE = (
    "Run 'distlock prepare' once, with this URL but a user that may make tables in --url or DISTLOCK_URL."
)
_TABLE_MISSING = ("42P01", "3F000")
_OLD_ROW = "the row of this name is gone"

#: A code of SQLSTATE, or what the text says -> what to do about it. The first that fits is taken.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("28P01", "Check the user and the password."),
    ("28000", "Let this user in: see pg_hba.conf on the server."),
    ("password authentication failed", "Check the user and the password."),
    ("no password supplied", "Put the password in the URL: postgresql://user:password@host/database."),
    ("no pg_hba.conf entry", "Let this user in: see pg_hba.conf on the server."),
    ("53300", "Raise max_connections on the server, or let fewer processes lock."),
    ("too many connections", "Raise max_connections on the server, or let fewer processes lock."),
    ("remaining connection slots", "Raise max_connections on the server, or let fewer processes lock."),
    ("sorry, too many clients", "Raise max_connections on the server, or let fewer processes lock."),
    ("53200", "Raise max_locks_per_transaction on the server: it has no room for more locks."),
    (
        "permission denied for schema",
        "To prepare it, be a user that may make tables. To lock, this user needs USAGE on the schema.",
    ),
    ("42501", "Grant this user SELECT, INSERT and UPDATE on distlock_name, and USAGE on distlock_number."),
    ("25006", "It is a standby, or read only: put the primary in the URL."),
    ("due to user request", "Somebody has ended the statement on the server: try again."),
    ("57P03", "It is starting or stopping: try again."),
    ("starting up", "It is starting: try again."),
    ("response to SSL negotiation", "It does not speak as PostgreSQL does: check host and port in the URL."),
    ("does not support SSL", "Switch TLS on there (ssl = on), or write another sslmode in the URL."),
    (' value: "', "Correct it in the URL."),
    ("root certificate file", "Correct sslrootcert in the URL, or the file."),
    ("does not match host name", "Write a host that the certificate names in the URL."),
    (
        "certificate verify failed",
        "Name who signed its certificate in the URL: ?sslrootcert=/path/ca.pem.",
    ),
    ("does not exist", "Check user and database in the URL."),
    ("could not translate", "Check the name of the host in the URL, and the resolver."),
    ("refused", "See whether it runs and can be reached from here."),
    ("start new thread", "This process can start no more threads: see 'ulimit -u'."),
    (_OLD_ROW, "The table was emptied or made anew: try again."),
    ("no answer", "See whether it is overloaded or the network drops packets; io_timeout bounds the wait."),
)


class PostgreSQLAddress:
    """The server of a URL: ``postgresql://[user[:password]@][host][:port][/database][?parameter=value…]``."""

    def __init__(self, url: str) -> None:
        # libpq takes the rest of a password after a special character for a host, port or database.
        login, at, rest = url.partition("?")[0].partition("://")[2].partition("@")
        try:
            if (at and "/" in login) or "@" in rest:
                raise ProgrammingError
            given = conninfo_to_dict(url)
        except ProgrammingError:
            # Its message may quote the password.
            raise ConfigurationError(
                "The URL of the postgresql backend cannot be read. Write "
                "postgresql://user:password@host:5432/database, special characters as %XX." + _meant(url)
            ) from None
        host = given.get("host") or given.get("hostaddr") or "its default socket"
        port = f":{given['port']}" if "port" in given else ""
        database = given.get("dbname") or given.get("user") or "the user's database"
        #: For people, without a password.
        self.shown = f"{host}{port}/{database}"
        self._given = given

    def conninfo(self) -> bytes:
        """Return the parameters of a session of this process, which may be a forked child."""
        # The name tells operators whose locks these are. The server keeps 63 bytes of it.
        name = f"{APPLICATION}:{os.getpid()}@{socket.gethostname()}"[:63]
        words = {**_DEFAULTS, "application_name": name, **self._given, "client_encoding": "UTF8"}
        return make_conninfo("", **words).encode()


def _meant(url: str) -> str:
    """Suggest parameters for misspelt ones, which are not quoted: they may be the rest of a password."""
    known = [one.keyword.decode() for one in pq.Conninfo.get_defaults()]
    said = [name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True) if name not in known]
    close = [word for name in said for word in difflib.get_close_matches(name, known, n=1)]
    return f" Did you mean {', '.join(close)} in the query?" if close else ""


class PostgreSQLConnection:
    """One connection of libpq: see `distlock.backends.sql.dialect.ServerConnection`.

    The constructor connects to *conninfo* until *deadline*.
    """

    def __init__(self, conninfo: bytes, deadline: float) -> None:
        self.since: float | None = None
        self._connection = PGconn.connect_start(conninfo)
        try:
            self._connect(deadline)
        except BaseException:
            self._connection.finish()
            raise

    def _connect(self, deadline: float) -> None:
        connection = self._connection
        while True:
            state = connection.connect_poll()
            if state == PollingStatus.OK:
                break
            if state == PollingStatus.FAILED or connection.status == ConnStatus.BAD:
                raise SessionLost(connection.get_error_message())
            self._sleep(select.POLLIN if state == PollingStatus.READING else select.POLLOUT, deadline)
        connection.nonblocking = 1
        #: Its socket, also when that is closed.
        self.fileno: int = connection.socket

    @property
    def pid(self) -> int:
        return self._connection.backend_pid

    @property
    def version(self) -> int:
        return self._connection.server_version

    @property
    def is_closed(self) -> bool:
        return self._connection.status == ConnStatus.BAD

    def call(self, statements: str, deadline: float) -> list[Rows]:
        self._drain(deadline)
        self.send(statements)
        return self.answer(deadline)

    def send(self, statements: str) -> None:
        self.since = now()
        try:
            self._connection.send_query(statements.encode())
            self._connection.flush()
        except OperationalError as error:
            raise SessionLost(str(error)) from error

    def is_answered(self) -> bool:
        try:
            self._connection.flush()
            self._connection.consume_input()
            return self.since is not None and not self._connection.is_busy()
        except OperationalError as error:
            raise SessionLost(str(error)) from error

    def wait_readable(self, seconds: float) -> None:
        with suppress(TimeoutError):
            self._sleep(select.POLLIN, now() + seconds)

    def answer(self, deadline: float) -> list[Rows]:
        try:
            found = self._results(deadline)
        except OperationalError as error:
            raise SessionLost(str(error)) from error
        for result in found:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
                text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
                if self._connection.status == ConnStatus.BAD:
                    raise SessionLost(text or result.get_error_message())
                raise ServerError(code, text or result.get_error_message())
        return [_rows(result) for result in found]

    def _drain(self, deadline: float) -> None:
        """Read the rest of an answer whose caller has timed out."""
        if self.since is not None:
            try:
                self.answer(deadline)
            except ServerError:
                pass  # Its caller has an error already, which says that the outcome is unknown.

    def _results(self, deadline: float) -> list[PGresult]:
        connection = self._connection
        found: list[PGresult] = []
        while connection.flush():
            self._sleep(select.POLLIN | select.POLLOUT, deadline)
            connection.consume_input()
        while True:
            while connection.is_busy():
                self._sleep(select.POLLIN, deadline)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                self.since = None
                return found
            found.append(result)

    def _sleep(self, events: int, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._connection.socket, events)
        left = deadline - now()
        if not poller.poll(max(0, math.ceil(min(left, 3600.0) * 1000))):
            raise TimeoutError

    def close(self) -> None:
        self._connection.finish()

    def forget(self) -> None:
        # finish() would end the parent's session. A PGconn of another process does not call it by itself.
        os.close(self.fileno)


def _rows(result: PGresult) -> Rows:
    return [
        [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
        for row in range(result.ntuples)
    ]


def row_missing() -> RowMissing:
    return RowMissing("", _OLD_ROW)


def error_for(address: PostgreSQLAddress, error: BaseException) -> LockError:
    """Return the error that a caller gets for *error*."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    code = error.code if isinstance(error, ServerError) else ""
    if code in _TABLE_MISSING:
        return ConfigurationError(
            f"The PostgreSQL database at {address.shown} lacks what locks need: {lines[0]}. {_MAKE_TABLE}"
        )
    if isinstance(error, TimeoutError):
        lines = ["no answer in time"]
    # libpq asks in a line of its own whether the server runs, and the remedy says that already.
    text = " ".join(line.strip() for line in lines if not line.endswith("?"))
    remedy = next((do for what, do in _REMEDIES if what == code or what in text), "See the server's log.")
    return BackendUnavailable(
        f"The PostgreSQL server at {address.shown} can't be used: {text.rstrip('.')}. {remedy}"
    )


def too_old(address: PostgreSQLAddress, version: int) -> ConfigurationError:
    return ConfigurationError(
        f"The PostgreSQL server at {address.shown} is version {version // 10000}, which can't end the "
        "session of a process that hangs (idle_session_timeout). Use version 14 or newer, or name another "
        "lock service, such as redis://."
    )


def pooled(address: PostgreSQLAddress) -> ConfigurationError:
    return ConfigurationError(
        f"Between this process and the PostgreSQL server at {address.shown} stands a proxy: the server "
        "answers from another session than the one that was opened. Where it pools transactions or "
        "statements, a lock would be left in a session that others get. Put the server itself in the URL, "
        "or, if the proxy pools whole sessions, say so: the option pools_sessions=True."
    )


def standby(address: PostgreSQLAddress) -> BackendUnavailable:
    return BackendUnavailable(
        f"The PostgreSQL server at {address.shown} can't be used: it is a standby, whose locks the others "
        "don't see. Put the primary in the URL; of several hosts, target_session_attrs=read-write finds it."
    )
