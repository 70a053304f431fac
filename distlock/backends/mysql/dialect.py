"""MariaDB and MySQL as a lock service: what is said, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.advisory.dialect import Rows, Say, ServerLock
from distlock.backends.advisory.failures import Refused
from distlock.backends.advisory.standing import Standing
from distlock.backends.findings import Finding
from distlock.backends.mysql import failures, statements
from distlock.backends.mysql.address import Address
from distlock.backends.mysql.examining import examine
from distlock.backends.mysql.looking import read, read_all
from distlock.backends.mysql.wire import Wire
from distlock.errors import ConfigurationError, LockError

#: From here on a session of MySQL may hold several locks; any MariaDB that still runs says 10 or more.
_OLDEST = (5, 7, 5)
#: The handshake has room for so many bits of a session's number.
_SHORT = 2**32
#: The largest number that leaves room for those after it in the table.
_MOST = 2**62
_NO_SUCH_THREAD = "1094"


class MySQL:
    """The server at *url*. *pools*: a proxy in between is known to pool whole sessions.

    See `distlock.backends.advisory.dialect.Dialect`.
    """

    ping = "SELECT 1"

    def __init__(self, url: str, pools: bool) -> None:
        self._address = Address(url)
        self._pools = pools
        self.shown = self._address.shown

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[Wire, int]:
        wire = Wire(self._address, deadline, patience)
        try:
            [[[version, session, read_only]], ciphers] = wire.call(statements.WHO, deadline)
            assert session is not None
            number = int(session)
            if failures.numbers_of(str(version)) < _OLDEST:
                raise failures.too_old(self._address, str(version))
            if number % _SHORT != wire.number % _SHORT and not self._pools:
                raise failures.pooled(self._address)
            if read_only not in ("0", "OFF"):
                raise failures.replica(self._address)
            if self._address.encrypted and not (ciphers and ciphers[0][1]):
                raise failures.unencrypted(self._address)
            wire.call(statements.begin("MariaDB" in str(version), patience), deadline)
        except BaseException:
            wire.close()
            raise
        return wire, number

    def lock_of(self, key: str, say: Say, make: bool) -> ServerLock | None:
        return ServerLock(statements.lock_name(self._address.database, key), statements.literal(key))

    def forget(self) -> None:
        """Do nothing: a lock is computed from its name."""

    def take(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int | None:
        [*_, [[had]]] = say(statements.take(lock.id, ttl))
        return _number(say(statements.number(lock.id, lock.name, 0, span))) if had == "1" else None

    def accept(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int:
        return _number(say(statements.accept(lock.id, lock.name, ttl, span)))

    def lift(self, say: Say, lock: ServerLock, have: int, number: int, span: int) -> int:
        if number > _MOST:
            raise ConfigurationError(
                f"A database has seen the fence {number}, and the table of the MySQL server can't count "
                "beyond it: raise FENCE_EPOCH (epoch= of connect), on all servers."
            )
        return _number(say(statements.number(lock.id, lock.name, number, span)))

    def wait(self, lock: ServerLock, window: float) -> str:
        return statements.wait(lock.id, window)

    def check_had(self, answer: list[Rows]) -> None:
        if answer[-1] != [["1"]]:
            # MySQL says it by an error, and MariaDB by NULL.
            raise Refused("1317", "the wait was interrupted")

    def give_back(self, say: Say, lock: ServerLock, last: bool) -> bool:
        [[[answer]], *_] = say(statements.give_back(lock.id, last))
        return answer == "1"

    def stands(self, say: Say, lock: ServerLock, session: int) -> bool | None:
        [[[word]]] = say(statements.look(lock.id, session))
        return {"granted": True, statements.WAITS: False}.get(word or "")

    def call_off(self, say: Say, lock: ServerLock, session: int) -> bool:
        if self.stands(say, lock, session):
            return False
        try:
            say(statements.call_off(session))
        except Refused as error:
            # It has ended, which its own wire tells.
            if error.code != _NO_SUCH_THREAD:
                raise
        return True

    def held(self, say: Say, lock: ServerLock) -> bool:
        return say(statements.held(lock.id)) == [[["1"]]]

    def standing(self, say: Say, key: str) -> Iterator[Standing]:
        return read(say, f"lock_name = '{statements.lock_name(self._address.database, key)}'")

    def all_standing(self, say: Say, before: str) -> Iterator[Standing]:
        return read_all(say, before)

    def ending(self, session: int) -> str:
        return f"KILL {session};"

    def prepare(self, say: Say) -> str:
        if say(statements.IS_MADE) == [[]]:
            say(statements.MAKE)
        return f"The table {statements.TABLE} is there, in {self.shown}."

    def examine(self, say: Say, sessions: int) -> Iterator[Finding]:
        return examine(say, sessions)

    def told(self, error: BaseException) -> LockError:
        return failures.unavailable(self._address, error)


def _number(answer: list[Rows]) -> int:
    [*_, [[number]]] = answer
    assert number is not None
    return int(number)
