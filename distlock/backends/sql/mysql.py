"""Locks in a MariaDB or MySQL server: those of GET_LOCK, in sessions of their own."""

from __future__ import annotations

from collections.abc import Iterator

from pymysql import Error

from distlock.backends.inspectable import Finding
from distlock.backends.sql import mysql_statements as statements
from distlock.backends.sql.backend import SQLBackend
from distlock.backends.sql.dialect import Execute, Rows, ServerError, ServerLock, SessionStatus, connections
from distlock.backends.sql.mysql_connection import (
    MySQLAddress,
    MySQLConnection,
    error_for,
    pooled,
    replica,
    too_old,
    unencrypted,
    version_numbers,
)
from distlock.errors import ConfigurationError, LockError

#: The first MySQL in which a session may hold several locks. Every MariaDB in use says 10 or more.
_OLDEST = (5, 7, 5)
#: The handshake has only this many bits of a session's id.
_HANDSHAKE_IDS = 2**32
#: The largest number that leaves room for later ones in the table.
_MOST = 2**62
_NO_SUCH_THREAD = "1094"


class MySQLDialect:
    """The server at *url*, spoken to in its SQL: see `distlock.backends.sql.dialect.Dialect`.

    *pools*: whether a proxy in between is known to pool whole sessions.
    """

    ping = "SELECT 1"

    def __init__(self, url: str, pools: bool) -> None:
        self._address = MySQLAddress(url)
        self._pools = pools
        self.shown = self._address.shown

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[MySQLConnection, int]:
        connection = MySQLConnection(self._address, deadline, patience)
        try:
            [[[version, session, read_only]], ciphers] = connection.call(statements.WHO, deadline)
            assert session is not None
            number = int(session)
            if version_numbers(str(version)) < _OLDEST:
                raise too_old(self._address, str(version))
            if number % _HANDSHAKE_IDS != connection.number % _HANDSHAKE_IDS and not self._pools:
                raise pooled(self._address)
            if read_only not in ("0", "OFF"):
                raise replica(self._address)
            if self._address.encrypted and not (ciphers and ciphers[0][1]):
                raise unencrypted(self._address)
            connection.call(statements.begin("MariaDB" in str(version), patience), deadline)
        except BaseException:
            connection.close()
            raise
        return connection, number

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        return ServerLock(statements.lock_name(self._address.database, key), statements.literal(key))

    def forget(self) -> None:
        """Do nothing: a lock is computed from its name."""

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        [*_, [[taken]]] = execute(statements.take(lock.id, ttl))
        return _number(execute(statements.number(lock.id, lock.name, 0, span))) if taken == "1" else None

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        return _number(execute(statements.accept(lock.id, lock.name, ttl, span)))

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        if number > _MOST:
            raise ConfigurationError(
                f"A database has seen the fence {number}, and the table of the MySQL server can't count "
                "beyond it: raise FENCE_EPOCH (epoch= of connect), on all servers."
            )
        return _number(execute(statements.number(lock.id, lock.name, number, span)))

    def wait(self, lock: ServerLock, window: float) -> str:
        return statements.wait(lock.id, window)

    def check_granted(self, answer: list[Rows]) -> None:
        if answer[-1] != [["1"]]:
            # MySQL answers with an error if somebody ends the wait, and MariaDB with NULL.
            raise ServerError("1317", "the wait was interrupted")

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        [[[answer]], *_] = execute(statements.release(lock.id, last))
        return answer == "1"

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        [[[state]]] = execute(statements.state_of(lock.id, session))
        return {"granted": True, statements.WAITS: False}.get(state or "")

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        if self.has_granted(execute, lock, session):
            return False
        try:
            execute(statements.cancel_wait(session))
        except ServerError as error:
            # If the session has ended, its own connection tells so.
            if error.code != _NO_SUCH_THREAD:
                raise
        return True

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        return execute(statements.is_locked(lock.id)) == [[["1"]]]

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        which = f"lock_name = '{statements.lock_name(self._address.database, key)}'"
        return statements.read_sessions(execute, which)

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        return statements.read_sessions_below(execute, prefix)

    def ending(self, session: int) -> str:
        return f"KILL {session};"

    def prepare(self, execute: Execute) -> str:
        if execute(statements.IS_MADE) == [[]]:
            execute(statements.MAKE)
        return f"The table {statements.TABLE} is there, in {self.shown}."

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        rows = [row for result in execute(statements.SETTINGS) for row in result]
        settings = {str(name).lower(): value or "" for name, value in rows}
        version = settings["version"]
        maker = "MariaDB" if "MariaDB" in version else "MySQL"
        yield Finding("ok", "server", f"{maker} {version.partition('-')[0]}.")
        flushed = settings["innodb_flush_log_at_trx_commit"]
        said = f"innodb_flush_log_at_trx_commit is {flushed}"
        if flushed == "1":
            yield Finding("ok", "persistence", f"{said}: a crash gives no fence's number out again.")
        else:
            yield Finding(
                "warning",
                "persistence",
                f"{said}: a crash may lose the fences of its last second, and give them out again.",
                "Set innodb_flush_log_at_trx_commit 1.",
            )
        if settings.get("wsrep_on") == "ON":
            yield Finding(
                "warning",
                "cluster",
                "It is a node of a Galera cluster: processes that reach two nodes both have a lock.",
                "Give all processes the same node, and fence what must not be done twice (fence=True).",
            )
        yield connections(int(settings["threads_connected"]), int(settings["max_connections"]), sessions)

    def error_for(self, error: BaseException) -> LockError:
        return error_for(self._address, error)


class MySQLBackend(SQLBackend):
    """The server at ``mysql://user:password@host:3306/database``: see `SQLBackend`.

    The server counts whole seconds: *ack_window* and the lease are rounded up.
    """

    library_errors = Error

    @staticmethod
    def make_dialect(url: str, pools_sessions: bool) -> MySQLDialect:
        return MySQLDialect(url, pools_sessions)


def _number(answer: list[Rows]) -> int:
    [*_, [[number]]] = answer
    assert number is not None
    return int(number)
