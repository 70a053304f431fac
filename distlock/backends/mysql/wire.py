"""One connection of PyMySQL that never blocks longer than it is told."""

from __future__ import annotations

import math
import select
import socket

from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND
from pymysql.err import InterfaceError, MySQLError

from distlock.backends.advisory.dialect import Rows
from distlock.backends.advisory.failures import Gone, Refused
from distlock.backends.mysql.address import Address
from distlock.clock import now

#: The session is over: 1053 the server shuts down, 1152 and 1927 somebody has ended it, 2006 and 2013 it
#: broke, 4031 it was idle for too long.
_ENDS = (1053, 1152, 1927, 2006, 2013, 4031)
#: The other end has said that it is over. Not everywhere: there it is found with the next renewal.
_ENDED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
#: The kernel finds a peer that is gone, also while nothing is sent: seconds, seconds, times.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class Wire:
    """Connects to *address* until *deadline*. *patience*: seconds from an answer's beginning to its end."""

    def __init__(self, address: Address, deadline: float, patience: float) -> None:
        self.since: float | None = None
        left = deadline - now()
        if left <= 0:
            raise TimeoutError
        connection = Connection(
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
            #: Its socket, also when that is closed.
            self.fileno = opened.fileno()
            try:
                connection.connect(opened)
            except BaseException:
                opened.close()
                raise
        except (OSError, RuntimeError) as error:
            # It can't be reached, or PyMySQL lacks what the server's way of passwords needs.
            raise Gone(str(error)) from error
        except MySQLError as error:
            if now() >= deadline:
                raise TimeoutError from error
            raise _failure(error) from error
        self._connection = connection
        connection._read_timeout = patience

    @property
    def number(self) -> int:
        """Return the session's id, as the server, or a proxy before it, calls it."""
        return int(self._connection.thread_id())

    @property
    def is_closed(self) -> bool:
        return not self._connection.open

    def call(self, statements: str, deadline: float) -> list[Rows]:
        self._settle(deadline)
        self.send(statements)
        return self.answer(deadline)

    def send(self, statements: str) -> None:
        self.since = now()
        try:
            self._connection._execute_command(COMMAND.COM_QUERY, statements)
        except MySQLError as error:
            raise _failure(error) from error

    def is_answered(self) -> bool:
        happened = self._poll(0.0)
        if happened & _ENDED or (happened and self.since is None):
            raise Gone("the server has ended the session")
        return bool(happened)

    def hear(self, seconds: float) -> None:
        self._poll(seconds)

    def answer(self, deadline: float) -> list[Rows]:
        if not self._poll(deadline - now()):
            raise TimeoutError
        found: list[Rows] = []
        try:
            more = True
            while more:
                self._connection.next_result()
                result = self._connection._result
                found.append([[_text(value) for value in row] for row in result.rows or ()])
                more = result.has_next
        except MySQLError as error:
            failure = _failure(error)
            if isinstance(failure, Refused):
                self.since = None
            raise failure from error
        except BaseException:
            # An interrupt: the next call would take the rest of this answer for its own.
            self._connection._force_close()
            raise
        self.since = None
        return found

    def _settle(self, deadline: float) -> None:
        """Await what is left of an answer that somebody has not waited for."""
        if self.since is not None:
            try:
                self.answer(deadline)
            except Refused:
                pass  # It is told nobody: who asked has been told that nothing is known.

    def _poll(self, seconds: float) -> int:
        if self.is_closed:
            # Its descriptor may be another's by now.
            raise Gone("the session was interrupted")
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN | _ENDED)
        found = poller.poll(max(0, math.ceil(min(seconds, 3600.0) * 1000)))
        return found[0][1] if found else 0

    def close(self) -> None:
        if self.since is not None:
            # Behind a good-bye that it has not read a server that waits for a lock takes us for alive.
            self._connection._force_close()
            return
        try:
            self._connection.close()
        except MySQLError:
            pass  # It is closed already.

    def forget(self) -> None:
        # close() would say good-bye in the parent's name.
        self._connection._force_close()


def _connected(address: Address, seconds: float) -> socket.socket:
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
        return Gone(str(text) or "the session is over")
    return Refused(str(code), str(text))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
