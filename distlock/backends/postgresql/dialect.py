"""PostgreSQL as a lock service: what is said, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from distlock.backends.advisory.dialect import Rows, Say, ServerLock
from distlock.backends.advisory.failures import Refused
from distlock.backends.advisory.standing import Standing
from distlock.backends.findings import Finding
from distlock.backends.postgresql import statements
from distlock.backends.postgresql.address import Address
from distlock.backends.postgresql.examining import examine
from distlock.backends.postgresql.failures import old_row, pooled, standby, too_old, unavailable
from distlock.backends.postgresql.looking import read
from distlock.backends.postgresql.wire import Wire
from distlock.errors import ConfigurationError, LockError

#: The first version with idle_session_timeout.
_OLDEST = 140000
#: Names whose rows are remembered.
_REMEMBERED = 10_000
_BEYOND_BIGINT = "22003"


class PostgreSQL:
    """The server at *url*. *pools*: a proxy in between is known to pool whole sessions.

    See `distlock.backends.advisory.dialect.Dialect`.
    """

    ping = "SELECT 1"

    def __init__(self, url: str, pools: bool) -> None:
        self._address = Address(url)
        self._pools = pools
        self.shown = self._address.shown
        #: By key.
        self._locks: dict[str, ServerLock] = {}

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[Wire, int]:
        wire = Wire(self._address.conninfo(), deadline)
        try:
            if wire.version < _OLDEST:
                raise too_old(self._address, wire.version)
            [[[pid, standing_by]], *_] = wire.call(statements.begin(0.0 if waits else patience), deadline)
            number = int(pid or 0)
            if number != wire.pid and not self._pools:
                raise pooled(self._address)
            if standing_by == "t":
                raise standby(self._address)
            if waits:
                with suppress(Refused):
                    wire.call(statements.NOTICE, deadline)
        except BaseException:
            wire.close()
            raise
        return wire, number

    def lock_of(self, key: str, say: Say, make: bool) -> ServerLock | None:
        if (known := self._locks.get(key)) is not None:
            return known
        name = statements.literal(key)
        [rows] = say(statements.find(name))
        if not rows and make:
            [rows] = say(statements.insert(name))
            if not rows:
                # Another process has just made it.
                [rows] = say(statements.find(name))
        if not rows:
            return None
        if len(self._locks) >= _REMEMBERED:
            self._locks.clear()
        [[row]] = rows
        lock = self._locks[key] = ServerLock(row or "", name)
        return lock

    def forget(self) -> None:
        self._locks.clear()

    def take(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int | None:
        taken, numbers = say(statements.take(lock.id, lock.name, ttl))
        return _number(numbers) if taken else None

    def accept(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int:
        [_, numbers] = say(statements.accept(lock.id, lock.name, ttl))
        return _number(numbers)

    def lift(self, say: Say, lock: ServerLock, have: int, number: int, span: int) -> int:
        try:
            [*_, numbers] = say(statements.lift(lock.id, lock.name, number - have))
        except Refused as error:
            if error.code != _BEYOND_BIGINT:
                raise
            raise ConfigurationError(
                f"A database has seen the fence {number}, and PostgreSQL can't count beyond it: "
                "raise FENCE_EPOCH (epoch= of connect), on all servers."
            ) from error
        return _number(numbers)

    def wait(self, lock: ServerLock, window: float) -> str:
        return statements.wait(lock.id, window)

    def check_had(self, answer: list[Rows]) -> None:
        """It answers with an error, or when the lock is ours."""

    def give_back(self, say: Say, lock: ServerLock, last: bool) -> bool:
        [[[answer]], *_] = say(statements.give_back(lock.id, last))
        return answer == "t"

    def stands(self, say: Say, lock: ServerLock, session: int) -> bool | None:
        [rows] = say(statements.look(session))
        return rows == [["t"]] if rows else None

    def call_off(self, say: Say, lock: ServerLock, session: int) -> bool:
        [[[word]]] = say(statements.call_off(session))
        return word != "granted"

    def held(self, say: Say, lock: ServerLock) -> bool:
        return bool(say(statements.held(lock.id))[0])

    def standing(self, say: Say, key: str) -> Iterator[Standing]:
        return read(say, f"n.name = {statements.literal(key)}")

    def all_standing(self, say: Say, before: str) -> Iterator[Standing]:
        return read(say, f"starts_with(n.name, {statements.literal(before)})")

    def ending(self, session: int) -> str:
        return f"SELECT pg_terminate_backend({session});"

    def prepare(self, say: Say) -> str:
        if say(statements.IS_MADE) != [[["t"]]]:
            say(statements.MAKE)
        return (
            f"The table {statements.TABLE} and the sequence {statements.SEQUENCE} are there, in {self.shown}."
        )

    def examine(self, say: Say, sessions: int) -> Iterator[Finding]:
        return examine(say, sessions)

    def told(self, error: BaseException) -> LockError:
        return unavailable(self._address, error)


def _number(rows: Rows) -> int:
    if not rows:
        raise old_row()
    return int(rows[0][0] or 0)
