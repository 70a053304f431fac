"""One connection of libpq that never blocks longer than it is told."""

from __future__ import annotations

import math
import os
import select
from contextlib import suppress

from psycopg import OperationalError
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGresult

from distlock.backends.advisory.dialect import Rows
from distlock.backends.advisory.failures import Gone, Refused
from distlock.clock import now


class Wire:
    """Connects to *conninfo* until *deadline*."""

    def __init__(self, conninfo: bytes, deadline: float) -> None:
        #: Since when an answer is awaited; None: none is.
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
                raise Gone(connection.get_error_message())
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
        self._settle(deadline)
        self.send(statements)
        return self.answer(deadline)

    def send(self, statements: str) -> None:
        self.since = now()
        try:
            self._connection.send_query(statements.encode())
            self._connection.flush()
        except OperationalError as error:
            raise Gone(str(error)) from error

    def is_answered(self) -> bool:
        try:
            self._connection.flush()
            self._connection.consume_input()
            return self.since is not None and not self._connection.is_busy()
        except OperationalError as error:
            raise Gone(str(error)) from error

    def hear(self, seconds: float) -> None:
        with suppress(TimeoutError):
            self._sleep(select.POLLIN, now() + seconds)

    def answer(self, deadline: float) -> list[Rows]:
        try:
            found = self._results(deadline)
        except OperationalError as error:
            raise Gone(str(error)) from error
        for result in found:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
                text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
                if self._connection.status == ConnStatus.BAD:
                    raise Gone(text or result.get_error_message())
                raise Refused(code, text or result.get_error_message())
        return [_rows(result) for result in found]

    def _settle(self, deadline: float) -> None:
        """Await what is left of an answer that somebody has not waited for."""
        if self.since is not None:
            try:
                self.answer(deadline)
            except Refused:
                pass  # It is told nobody: who asked has been told that nothing is known.

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
        # finish() would say good-bye in the parent's name; a PGconn of another process does not.
        os.close(self.fileno)


def _rows(result: PGresult) -> Rows:
    return [
        [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
        for row in range(result.ntuples)
    ]
