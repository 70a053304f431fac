"""Locks in a MariaDB or MySQL server: locks of GET_LOCK, in sessions that are opened for locks only.

The server's name of a lock is a digest. A table counts the fences of each name.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

from pymysql import Error

from distlock.backends.inspectable import Finding, connections
from distlock.backends.sql.backend import SQLBackend
from distlock.backends.sql.connection import Rows, ServerError, reading
from distlock.backends.sql.dialect import Dialect, Execute, ServerLock, SessionStatus
from distlock.backends.sql.mysql_connection import MySQLAddress, MySQLConnection
from distlock.errors import ConfigurationError

#: The first MySQL in which a session may hold several locks. Every MariaDB in use has version 10 or later.
_OLDEST = (5, 7, 5)
#: The handshake has a session's id modulo this number.
_HANDSHAKE_IDS = 2**32
#: The largest number to which a fence may be raised. The table's bigint has room for later numbers.
_MOST = 2**62
_NO_SUCH_THREAD = "1094"

#: Seconds that the server lets a session wait: a year, because this process itself ends waits that time out.
_WAIT = 31_536_000
#: Seconds that a session without a hold may be idle. The pool closes such a session long before.
_IDLE = 3600

_TABLE = "distlock_name"
#: The server's word for the state of a session that waits for a lock of GET_LOCK.
_WAITS = "User lock"

_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} ("
    "lock_name char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "name text CHARACTER SET utf8mb4 NOT NULL, "
    "number bigint NOT NULL) ENGINE = InnoDB"
)
#: Returns a row if the table exists. Even then, `_MAKE` would need the right to make tables.
_IS_MADE = (
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() "  # noqa: S608
    f"AND table_name = '{_TABLE}'"
)
#: Asks for the server's version, the session's id, and more. If a query asks for CONNECTION_ID() alone, some
#: proxies answer it themselves.
_WHO = "SELECT VERSION(), CONNECTION_ID(), @@GLOBAL.read_only; SHOW SESSION STATUS LIKE 'Ssl_cipher'"
#: Returns what the health check needs. Any user may send it.
_SETTINGS = (
    "SHOW VARIABLES WHERE Variable_name IN "
    "('version', 'innodb_flush_log_at_trx_commit', 'max_connections', 'wsrep_on'); "
    "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
)
# A user without the right PROCESS sees only the ids of other users' sessions.
_HOLDERS = (
    f"SELECT h.name, h.session, p.USER, p.HOST FROM (SELECT name, IS_USED_LOCK(lock_name) AS session "  # noqa: S608
    f"FROM {_TABLE} WHERE {{which}} HAVING session IS NOT NULL) AS h "
    "LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = h.session"
)
# In a statement that waits, the first text in quotes is the name of the lock. Only MariaDB has milliseconds.
_WAITERS = (
    "SELECT n.name, p.ID, p.USER, p.HOST, p.TIME FROM information_schema.PROCESSLIST AS p "  # noqa: S608
    f"JOIN {_TABLE} AS n ON n.lock_name = "
    "CONVERT(SUBSTRING_INDEX(SUBSTRING_INDEX(p.INFO, CHAR(39), 2), CHAR(39), -1) USING ascii) "
    f"WHERE p.STATE = '{_WAITS}' AND {{which}} "
    "ORDER BY n.name, /*M! p.TIME_MS DESC, */ p.TIME DESC, p.ID"
)

_USE_TLS = "add ssl_ca=/path/to/ca.pem to the URL."


class MySQLDialect(Dialect):
    """The SQL of MariaDB and MySQL: see `Dialect`."""

    database = "MySQL"
    library_errors = Error
    lacking = {"1146": Dialect.TABLES, "1049": ("the database", "Check the URL.")}
    remedies = (
        ("Check the user and the password.", "1045", "1698"),
        ("Let this host in: see the hosts of the user on the server.", "1130"),
        ("Grant this user the database, and SELECT, INSERT and UPDATE on distlock_name.", "1044"),
        ("To prepare it, be a user that may make tables.", "CREATE command denied"),
        ("Grant this user SELECT, INSERT and UPDATE on distlock_name.", "1142", "1143"),
        ("Raise max_connections on the server, or let fewer processes lock.", "1040", "1203"),
        ("Raise what the server lets this user have, or let fewer processes lock.", "1226"),
        ("Somebody's transaction keeps a row of distlock_name locked: see SHOW FULL PROCESSLIST.", "1205"),
        (f"The server wants TLS: {_USE_TLS}", "3159"),
        ("It is a replica, or read only: put the primary in the URL.", "1290", "1836"),
        ("Somebody has ended the statement on the server: try again.", "1317"),
        ("Check ssl_ca, and with ssl_verify_identity the name of the host.", "CERTIFICATE_VERIFY_FAILED"),
        ("Check the parameters ssl_… of the URL, and what the server has.", "SSL"),
        (f"Use TLS: {_USE_TLS}", "'cryptography' package is required"),
        ("Check the name of the host in the URL, and the resolver.", "Name or service not known"),
        ("Check unix_socket in the URL.", "No such file"),
    )

    def __init__(self, url: str, pools_sessions: bool) -> None:
        super().__init__(url, pools_sessions)
        self._address = MySQLAddress(url)
        self.shown = self._address.shown

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[MySQLConnection, int]:
        connection = MySQLConnection(self._address, deadline, patience)
        try:
            answer = connection.call(_WHO, deadline)
            with reading():
                [[[version, session, read_only]], ciphers] = answer
                assert version is not None
                assert session is not None
                number = int(session)
                cipher = ciphers[0][1] if ciphers else None
                numbers = tuple(map(int, re.findall(r"\d+", version.partition("-")[0])))
            if numbers < _OLDEST:
                raise self.unfit(
                    f"is version {version}, in which a session can't hold several locks. Use MariaDB 10.11 "
                    "or MySQL 8, or name another lock service, such as redis://."
                )
            if number % _HANDSHAKE_IDS != connection.number % _HANDSHAKE_IDS and not self.pools_sessions:
                raise self.proxy_error()
            if read_only not in ("0", "OFF"):
                why = "it is read only, as replicas are, whose locks the others don't see"
                raise self.unavailable(why, "Put the primary in the URL.")
            if self._address.encrypted and not cipher:
                raise self.unfit(
                    "speaks no TLS, which the URL asks for. Switch it on there, or take the parameters ssl_… "
                    "out of the URL."
                )
            # The limits for row and table locks bound each statement: see `Dialect.open`. The site's own
            # limits for statements must not end a wait.
            unlimited = "max_statement_time" if "MariaDB" in version else "max_execution_time"
            seconds = math.ceil(patience)
            connection.call(
                f"SET SESSION {unlimited} = 0, wait_timeout = {_IDLE}, "
                f"innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}",
                deadline,
            )
        except BaseException:
            connection.close()
            raise
        return connection, number

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        return ServerLock(self._lock_name(key), _literal(key))

    def _lock_name(self, key: str) -> str:
        """Return the digest that names the lock: GET_LOCK takes 64 characters, and names are server-wide."""
        # Some servers take Shop and shop for one database. The 1 is the number of the format.
        return hashlib.sha256(f"distlock-1:{self._address.database.lower()}:{key}".encode()).hexdigest()

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        # Even without waiting, this does not overtake a session that waits.
        answer = execute(_get(lock, 0, ttl))
        with reading():
            [*_, [[taken]]] = answer
        return _number_in(execute(_number(lock, 0, span))) if taken == "1" else None

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        return _number_in(execute(f"{_idle(ttl)}; {_number(lock, 0, span)}"))

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        if number > _MOST:
            raise ConfigurationError(
                f"A database has seen the fence {number}, and the table of the MySQL server can't count "
                "beyond it: raise FENCE_EPOCH (epoch= of connect), on all servers."
            )
        return _number_in(execute(_number(lock, number, span)))

    def wait(self, lock: ServerLock, window: float) -> str:
        return _get(lock, _WAIT, window)

    def check_granted(self, answer: list[Rows]) -> None:
        if answer[-1] != [["1"]]:
            # MySQL answers with an error if somebody ends the wait, and MariaDB with NULL.
            raise ServerError("1317", "the wait was interrupted")

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        stay = f"; {_idle(_IDLE)}" if last else ""
        answer = execute(f"SELECT RELEASE_LOCK('{lock.id}'){stay}")
        with reading():
            [[[was_ours]], *_] = answer
        return was_ours == "1"

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        answer = execute(
            f"SELECT CASE WHEN IS_USED_LOCK('{lock.id}') = {session} THEN 'granted' ELSE "  # noqa: S608
            f"(SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {session}) END"
        )
        with reading():
            [[[state]]] = answer
        return {"granted": True, _WAITS: False}.get(state or "")

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        if self.has_granted(execute, lock, session):
            return False
        try:
            execute(f"KILL QUERY {session}")
        except ServerError as error:
            # The session has ended. The next call on its own connection raises `SessionLost`.
            if error.code != _NO_SUCH_THREAD:
                raise
        return True

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        return execute(f"SELECT IS_USED_LOCK('{lock.id}') IS NOT NULL") == [[["1"]]]

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        return _read_sessions(execute, f"lock_name = '{self._lock_name(key)}'")

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        begins = f"LEFT(name, {len(prefix)}) COLLATE utf8mb4_bin = {_literal(prefix)}"
        # The table has a row for each name that was ever locked, so it is read in sixteen parts.
        for digit in "0123456789abcdef":
            yield from _read_sessions(execute, f"lock_name LIKE '{digit}%' AND {begins}")

    def ending(self, session: int) -> str:
        return f"KILL {session};"

    def prepare(self, execute: Execute) -> str:
        if execute(_IS_MADE) == [[]]:
            execute(_MAKE)
        return f"The table {_TABLE} is there, in {self.shown}."

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        answer = execute(_SETTINGS)
        with reading():
            settings = {str(name).lower(): value or "" for rows in answer for name, value in rows}
            version, flushed = settings["version"], settings["innodb_flush_log_at_trx_commit"]
            here, most = int(settings["threads_connected"]), int(settings["max_connections"])
        maker = "MariaDB" if "MariaDB" in version else "MySQL"
        yield Finding("ok", "server", f"{maker} {version.partition('-')[0]}.")
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
        yield connections(here, most, sessions, "max_connections")


class MySQLBackend(SQLBackend):
    """The backend for the server at ``mysql://user:password@host:3306/database``: see `SQLBackend`.

    The server counts in whole seconds, so *ack_window* and the lease are rounded up.
    """

    dialect = MySQLDialect


def _literal(text: str) -> str:
    """Return *text* as an SQL literal that means the same in every sql_mode."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _idle(seconds: float) -> str:
    """Return SQL that makes the server end the session when it has been idle for *seconds*, rounded up."""
    return f"SET SESSION wait_timeout = {math.ceil(seconds)}"


def _get(lock: ServerLock, longest: int, lease: float) -> str:
    """Return statements that wait up to *longest* seconds for the lock, and answer 1 if they got it."""
    # The lease begins when the server grants the lock, before this process learns of that.
    return (
        f"SET @distlock = GET_LOCK('{lock.id}', {longest}); "
        f"SET SESSION wait_timeout = IF(@distlock, {math.ceil(lease)}, @@SESSION.wait_timeout); "
        "SELECT @distlock"
    )


def _number(lock: ServerLock, above: int, span: int) -> str:
    """Return the statements that reserve *span* fence numbers above *above*, and answer the first."""
    return (
        f"INSERT INTO {_TABLE} (lock_name, name, number) "  # noqa: S608
        f"VALUES ('{lock.id}', {lock.name}, LAST_INSERT_ID({above + 1}) + {span}) "
        f"ON DUPLICATE KEY UPDATE number = LAST_INSERT_ID(GREATEST(number, {above + 1})) + {span}; "
        "SELECT LAST_INSERT_ID()"
    )


def _number_in(answer: list[Rows]) -> int:
    with reading():
        [*_, [[number]]] = answer
        assert number is not None
        return int(number)


def _read_sessions(execute: Execute, which: str) -> Iterator[SessionStatus]:
    """Yield the holders, then the waiters, of the locks whose rows meet the condition *which*."""
    answer = execute(f"{_HOLDERS}; {_WAITERS}".format(which=which))
    with reading():
        holders, waiters = answer
        found = [_status(*row) for row in (*holders, *waiters)]
    yield from found


def _status(
    name: str | None, session: str | None, user: str | None, host: str | None, *waits: str | None
) -> SessionStatus:
    about = f"{session} of MySQL" + (f", for {user} at {host}" if host else "")
    return SessionStatus(name or "", int(session or 0), float(waits[0] or 0) if waits else None, about)
