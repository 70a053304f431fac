"""The names of locks that are rows: what the database tells of them is what there is to be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from distlock.backends.base import refuse_lacking
from distlock.backends.inspectable import KeyState, SeenProcess, StatusRow
from distlock.errors import BackendUnavailable, ConfigurationError, LockError
from distlock.fence import row_locks
from distlock.fence.statements import Connection
from distlock.fence.trouble import no_table, old_table, trouble, words_of
from distlock.locks.engine_namespace import EngineNamespace

_MAKE_TABLE = "Run 'python manage.py migrate distlock' or 'flask distlock create-table'."

#: Gives a connection to the database that has the rows, for a block.
Look = Callable[[], AbstractContextManager[Connection]]


class RowNamespace(EngineNamespace):
    may_be_away = False
    #: How to look at the rows; None: from here it is not known.
    look: Look | None = None

    def refuse_lacking(self, capability: str, wish: str) -> None:
        refuse_lacking("database", self.engine.backend.capabilities, capability, wish)

    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        with self._looking() as connection:
            return row_locks.key_state(connection, self.prefix, name), None, ""

    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        with self._looking() as connection:
            found = list(row_locks.listed(connection, self.prefix, before))
        return ((seen.row.key, seen) for seen in found if seen.row is not None)

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        # The number does not say which: after a ROLLBACK another transaction writes the same.
        if not transaction:
            raise ConfigurationError(
                f"Which transaction holds the lock {name!r} is not known, so nothing was broken. PostgreSQL "
                "can't tell a savepoint's until somebody waits. Look again, or end the connection that hangs."
            )
        with self._looking() as connection:
            return row_locks.end(connection, self.prefix, name, transaction)

    @contextmanager
    def _looking(self) -> Iterator[Connection]:
        if self.look is None:
            raise ConfigurationError("Look at rows that are locks by locks[alias], which knows the database.")
        try:
            with self.look() as connection:
                yield connection
        except LockError:
            raise
        except Exception as error:
            found = trouble(error)
            if found == "no table":
                raise no_table(_MAKE_TABLE, row_is_lock=True) from None
            if found == "old table":
                raise old_table() from None
            raise BackendUnavailable(
                f"The database does not answer a look at its rows: {words_of(error)}"
            ) from error
