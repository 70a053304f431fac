"""The connection to a PostgreSQL server: its URL, and a connection of libpq."""

from __future__ import annotations

import array
import difflib
import fcntl
import os
import select
import socket
import termios
from functools import partial
from urllib.parse import parse_qsl

from psycopg import OperationalError, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGresult

from distlock.backends.sql.connection import (
    LONGEST_ANSWER,
    Rows,
    ServerConnection,
    ServerError,
    SessionLost,
    poll,
    reading,
)
from distlock.clock import now
from distlock.errors import ConfigurationError

#: The beginning of the application_name that identifies a process of distlock.
APPLICATION = "distlock"
#: Defaults that the URL may change. With these, the kernel notices a peer that is gone.
_DEFAULTS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
#: How the codes of notices and errors begin with which the server ends a session: "operator intervention".
_ENDS_SESSION = b"57P"
#: The states in which the server wants to copy data, which no statement of ours asks for.
_COPIES = (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH)


class PostgreSQLAddress:
    """The server of a URL: ``postgresql://[user[:password]@][host][:port][/database][?parameter=value…]``."""

    def __init__(self, url: str) -> None:
        # libpq would take what follows an unquoted character in a password for host, port or database.
        login, at, rest = url.partition("?")[0].partition("://")[2].partition("@")
        try:
            if (at and "/" in login) or "@" in rest:
                raise ProgrammingError
            given = conninfo_to_dict(url)
        except ProgrammingError:
            # The message of the cause may quote the password.
            raise ConfigurationError(
                "The URL of the postgresql backend cannot be read. Write "
                "postgresql://user:password@host:5432/database, special characters as %XX." + _meant(url)
            ) from None
        host = given.get("host") or given.get("hostaddr") or "its default socket"
        port = f":{given['port']}" if "port" in given else ""
        database = given.get("dbname") or given.get("user") or "the user's database"
        #: The server and the database, as shown to people, without a password.
        self.shown = f"{host}{port}/{database}"
        self._given = given

    def conninfo(self) -> bytes:
        """Return the connection string, with the name of this process, which may be a forked child."""
        # The name tells operators which process has the locks. The server keeps 63 bytes of it.
        name = f"{APPLICATION}:{os.getpid()}@{socket.gethostname()}"[:63]
        words = {**_DEFAULTS, "application_name": name, **self._given, "client_encoding": "UTF8"}
        return make_conninfo("", **words).encode()


def _meant(url: str) -> str:
    """Suggest correct parameters. Misspelt ones are not quoted, because they may be part of a password."""
    known = [one.keyword.decode() for one in pq.Conninfo.get_defaults()]
    said = [name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True) if name not in known]
    close = [word for name in said for word in difflib.get_close_matches(name, known, n=1)]
    return f" Did you mean {', '.join(close)} in the query?" if close else ""


class PostgreSQLConnection(ServerConnection):
    """One connection of libpq. The constructor connects to *conninfo* until *deadline*."""

    def __init__(self, conninfo: bytes, deadline: float) -> None:
        self._connection = PGconn.connect_start(conninfo)
        #: The reasons that the server has given, outside of an answer, for ending the session.
        self._reasons: list[str] = []
        self._connection.notice_handler = partial(_keep_reason, self._reasons)
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
        #: The descriptor of the socket, kept after a close.
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

    def send(self, statements: str) -> None:
        self.sent_at = now()
        try:
            # An answer that came before the statements is not theirs. While none is pending, libpq drops it.
            # It reports an error as a notice.
            self._connection.consume_input()
            self._connection.is_busy()
            if self._reasons:
                raise SessionLost(self._reasons[0])
            self._connection.send_query(statements.encode())
            self._connection.flush()
        except OperationalError as error:
            raise self._lost(error) from error

    def is_answered(self) -> bool:
        try:
            self._connection.flush()
            self._connection.consume_input()
            return self.sent_at is not None and not self._connection.is_busy()
        except OperationalError as error:
            raise self._lost(error) from error

    def answer(self, deadline: float) -> list[Rows]:
        try:
            found = self._results(deadline)
        except OperationalError as error:
            raise self._lost(error) from error
        for result in found:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode("ascii", "replace")
                text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
                if self._connection.status == ConnStatus.BAD:
                    raise SessionLost(text or result.get_error_message())
                raise ServerError(code, text or result.get_error_message())
        with reading():
            return [_rows(result) for result in found]

    def _results(self, deadline: float) -> list[PGresult]:
        connection = self._connection
        found: list[PGresult] = []
        while connection.flush():
            self._sleep(select.POLLIN | select.POLLOUT, deadline)
            connection.consume_input()
        received = 0
        while True:
            while connection.is_busy():
                self._sleep(select.POLLIN, deadline)
                received += _readable_bytes(connection.socket)
                if received > LONGEST_ANSWER:
                    raise SessionLost("an answer is too long")
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                self.sent_at = None
                return found
            if result.status in _COPIES:
                # libpq would return the same result again and again.
                raise SessionLost("an answer to what was not asked")
            found.append(result)

    def _sleep(self, events: int, deadline: float) -> None:
        if not poll(self._connection.socket, events, deadline - now()):
            raise TimeoutError

    def _lost(self, error: OperationalError) -> SessionLost:
        return SessionLost(next(iter(self._reasons), str(error)))

    def close(self) -> None:
        self._connection.finish()

    def forget(self) -> None:
        # finish() would end the parent's session. psycopg does not call it in a forked child, either.
        os.close(self.fileno)


def _keep_reason(reasons: list[str], notice: PGresult) -> None:
    """Append the text of *notice* to *reasons* if it says that the server ends the session."""
    if (notice.error_field(DiagnosticField.SQLSTATE) or b"").startswith(_ENDS_SESSION):
        text = notice.error_field(DiagnosticField.MESSAGE_PRIMARY) or b""
        reasons.append(text.decode("utf-8", "replace"))


def _readable_bytes(fileno: int) -> int:
    """Return how many bytes libpq can read from the socket. It keeps all of them until an answer is whole."""
    count = array.array("i", [0])
    fcntl.ioctl(fileno, termios.FIONREAD, count)
    return count[0]


def _rows(result: PGresult) -> Rows:
    return [
        [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
        for row in range(result.ntuples)
    ]
