"""The connection to a MariaDB or MySQL server: its URL, a connection of PyMySQL, and its errors."""

from __future__ import annotations

import os
import select
import socket
import ssl
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND
from pymysql.err import InterfaceError, MySQLError

from distlock.backends.sql.connection import (
    LONGEST_ANSWER,
    PEER_CLOSED,
    Rows,
    ServerConnection,
    ServerError,
    SessionLost,
    poll,
    reading,
)
from distlock.clock import now
from distlock.errors import ConfigurationError

_HOW = "Write mysql://user:password@host:3306/database, special characters as %XX."
#: The parameters that the URL's query may have. Other libraries for MySQL have the same.
_TEXTS = "unix_socket", "ssl_ca", "ssl_cert", "ssl_key"
_SWITCHES = "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled"
_ON, _OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")

#: The errors that end a session: the server shuts down (1053), an operator ended the session (1152, 1927),
#: the connection broke (2006, 2013), or the session was idle for too long (4031).
_ENDS = (1053, 1152, 1927, 2006, 2013, 4031)
#: With these options, in seconds, seconds and a count, the kernel notices a peer that is gone.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


#: The buffered readers of the parent's connections, in a forked child. If a thread of the parent was reading,
#: the lock of its reader stays locked here, and closing the reader, or finalising it, would wait for ever.
_inherited: list[Any] = []


class MySQLAddress:
    """The server of a URL: ``mysql://[user[:password]@][host][:port]/database[?parameter=value…]``."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
            # An unquoted special character in the password ends the host part early.
            if "@" in f"{parts.path}{parts.query}" or parts.fragment:
                raise ValueError
        except ValueError:
            # The message of the cause may quote the password.
            _refuse(f"cannot be read. {_HOW}")
        self.host = parts.hostname or "localhost"
        self.port = port
        self.database = unquote(parts.path.removeprefix("/"))
        if not self.database or "/" in self.database:
            _refuse(f"names no database. {_HOW}")
        given = _parameters(parts.query)
        self.socket = given.get("unix_socket")
        #: The server and the database, as shown to people, without a password.
        self.shown = f"{self.socket or f'{self.host}:{port}'}/{self.database}"
        plain = given.pop("ssl_disabled", False)
        tls = {word: value for word, value in given.items() if value and word.startswith("ssl_")}
        if tls and plain:
            _refuse(f"has ssl_disabled beside {', '.join(tls)}: leave out either.")
        #: Whether the server has to speak TLS.
        self.encrypted = bool(tls)
        #: The arguments for PyMySQL, which by default uses TLS if the server offers it.
        self.arguments: dict[str, Any] = {
            "user": unquote(parts.username or ""),
            # PyMySQL encodes text as latin1.
            "password": unquote(parts.password or "").encode(),
            "host": self.host,
            "port": port,
            "database": self.database,
            "ssl_disabled": plain,
            "ssl": _context(tls) if tls else None,
        }


def _parameters(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word, text in parse_qsl(query, keep_blank_values=True):
        if word not in _TEXTS + _SWITCHES:
            _refuse(f"has {word!r}, which it does not know. It knows: {', '.join(_TEXTS + _SWITCHES)}.")
        if word in _SWITCHES and text.lower() not in _ON + _OFF:
            _refuse(f"has {word}, which has to be true or false.")
        found[word] = text.lower() in _ON if word in _SWITCHES else text
    return found


def _refuse(why: str) -> NoReturn:
    raise ConfigurationError(f"The URL of the mysql backend {why}") from None


def _context(tls: dict[str, Any]) -> ssl.SSLContext:
    """Return the TLS context. A CA file in the URL turns verification on, even without ssl_verify_cert."""
    try:
        context = ssl.create_default_context(cafile=tls.get("ssl_ca"))
        if "ssl_cert" in tls or "ssl_key" in tls:
            context.load_cert_chain(tls.get("ssl_cert", ""), tls.get("ssl_key"))
    except OSError as error:
        raise ConfigurationError(
            f"The certificates in the URL of the mysql backend can't be used: {error}. Check "
            f"{', '.join(word for word in tls if not word.startswith('ssl_verify'))}."
        ) from error
    # Python 3.13 refuses the certificates that MySQL makes for itself.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = "ssl_verify_identity" in tls
    if not tls.keys() & {"ssl_ca", "ssl_verify_cert", "ssl_verify_identity"}:
        context.verify_mode = ssl.CERT_NONE
    return context


class _BoundedConnection(Connection):  # type: ignore[misc]
    """A connection that is closed in the middle of an answer that is too long."""

    #: The bytes of the answer to the last statements.
    received = 0

    def _read_bytes(self, num_bytes: int) -> bytes:
        self.received += num_bytes
        if self.received > LONGEST_ANSWER:
            self._force_close()
            raise InterfaceError(0, "an answer is too long")
        data: bytes = super()._read_bytes(num_bytes)
        return data


class MySQLConnection(ServerConnection):
    """One connection of PyMySQL.

    The constructor connects to *address* until *deadline*. *patience*: the longest pause within an answer,
    in seconds.
    """

    def __init__(self, address: MySQLAddress, deadline: float, patience: float) -> None:
        left = deadline - now()
        if left <= 0:
            raise TimeoutError
        connection = _BoundedConnection(
            **address.arguments,
            charset="utf8mb4",
            autocommit=True,
            program_name="distlock",
            client_flag=CLIENT.MULTI_STATEMENTS,
            read_timeout=left,
            write_timeout=patience,
            defer_connect=True,
        )
        try:
            opened = _connected(address, left)
            #: The descriptor of the socket, kept after a close.
            self.fileno = opened.fileno()
            try:
                with reading():
                    connection.connect(opened)
            except BaseException:
                opened.close()
                raise
        except (OSError, RuntimeError, UnicodeError) as error:
            # The server can't be reached, no host has such a name, or the server's kind of password needs a
            # package that is missing.
            raise SessionLost(str(error)) from error
        except MySQLError as error:
            if now() >= deadline:
                raise TimeoutError from error
            raise _failure(error) from error
        self._connection = connection
        connection._read_timeout = patience

    @property
    def number(self) -> int:
        """The session's id in the handshake, into which a proxy may write an id of its own."""
        return int(self._connection.thread_id())

    @property
    def is_closed(self) -> bool:
        return not self._connection.open

    def send(self, statements: str) -> None:
        self._refuse_leftovers()
        self.sent_at = now()
        self._connection.received = 0
        try:
            self._connection._execute_command(COMMAND.COM_QUERY, statements)
        except MySQLError as error:
            raise _failure(error) from error

    def _refuse_leftovers(self) -> None:
        """Raise `SessionLost` if there are bytes to read, which would be taken for the next answer."""
        sock, received = self._connection._sock, self._connection._rfile
        if sock is None:
            return
        try:
            timeout = sock.gettimeout()
            try:
                sock.settimeout(0.0)
                leftovers = received.peek(1)
            except (BlockingIOError, ssl.SSLWantReadError):
                leftovers = b""
            finally:
                # PyMySQL does not set it for each answer.
                sock.settimeout(timeout)
        except (OSError, ValueError) as error:
            # ValueError: another thread has closed the connection.
            raise SessionLost(str(error)) from error
        if leftovers:
            raise SessionLost("the server has ended the session, or answered what nothing had asked")

    def is_answered(self) -> bool:
        happened = self._poll(0.0)
        if happened & (PEER_CLOSED | select.POLLHUP | select.POLLERR) or (happened and self.sent_at is None):
            raise SessionLost("the server has ended the session")
        return bool(happened)

    def answer(self, deadline: float) -> list[Rows]:
        if not self._poll(deadline - now()):
            raise TimeoutError
        found: list[Rows] = []
        try:
            more = True
            while more:
                with reading():
                    self._connection.next_result()
                result = self._connection._result
                found.append([[_text(value) for value in row] for row in result.rows or ()])
                more = result.has_next
        except MySQLError as error:
            failure = _failure(error)
            if isinstance(failure, ServerError):
                self.sent_at = None
            raise failure from error
        except BaseException as error:
            # After an interrupt the next call would read the rest of this answer as its own.
            self._connection._force_close()
            if isinstance(error, RuntimeError) and "LOAD_LOCAL" in str(error):
                # The server asks for a local file, which PyMySQL refuses.
                raise SessionLost(str(error)) from error
            raise
        self.sent_at = None
        return found

    def _poll(self, seconds: float) -> int:
        if self.is_closed:
            # The descriptor may belong to another file by now.
            raise SessionLost("the session was interrupted")
        return poll(self.fileno, select.POLLIN | PEER_CLOSED, seconds)

    def close(self) -> None:
        if self.sent_at is not None:
            # A session that waits for a lock does not read COM_QUIT: close the socket.
            self._connection._force_close()
            return
        try:
            self._connection.close()
        except MySQLError:
            pass  # It is closed already.

    def forget(self) -> None:
        # close() would send COM_QUIT, and end the parent's session.
        connection = self._connection
        sock, received = connection._sock, connection._rfile
        connection._sock = connection._rfile = None
        if sock is not None:
            _inherited.append(received)
            os.close(sock.detach())


def _connected(address: MySQLAddress, seconds: float) -> socket.socket:
    if address.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(seconds)
            made.connect(address.socket)
        except BaseException:
            made.close()
            raise
        return made
    made = socket.create_connection((address.host, address.port), seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for word, value in _KEEPALIVE.items():
        if hasattr(socket, word):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, word), value)
    return made


def _failure(error: MySQLError) -> Exception:
    code, text = error.args if len(error.args) == 2 else (0, str(error))
    if isinstance(error, InterfaceError) or code in _ENDS:
        return SessionLost(str(text) or "the session is over")
    return ServerError(str(code), str(text))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
