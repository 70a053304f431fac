"""What threads need in the test of a Django site. Nothing is imported where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from distlock.errors import ConfigurationError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_IN_MEMORY = (
    "The race used the SQLite database {alias!r}, which is in memory: each thread has a connection of its "
    'own to it, and finds it locked. Let the tests have a file: add "TEST": {{"NAME": "test.sqlite3"}} to '
    "DATABASES[{alias!r}]."
)
_INSIDE = (
    "A transaction is open on the database {alias!r}: other threads don't see what was written in it, so "
    "there is nothing to race for. Let the test commit: inherit from TransactionTestCase instead of "
    "TestCase, or in pytest-django write @pytest.mark.django_db(transaction=True)."
)


def _opened() -> Sequence[BaseDatabaseWrapper]:
    """The running thread's connections."""
    if "django.db" not in sys.modules:
        return []
    from django.conf import settings
    from django.db import connections

    return connections.all(initialized_only=True) if settings.configured else []


def refuse_open_transaction() -> None:
    """Raise `ConfigurationError` if the test itself has a transaction open, as Django's ``TestCase`` has."""
    for connection in _opened():
        if connection.in_atomic_block:
            raise ConfigurationError(_INSIDE.format(alias=connection.alias))


def close_connections() -> None:
    """Close the running thread's connections. Raises `ConfigurationError` for those that no race can use."""
    in_memory = None
    for connection in _opened():
        if connection.connection is not None and connection.vendor == "sqlite":
            from django.db.backends.base.base import BaseDatabaseWrapper

            if connection.is_in_memory_db():  # type: ignore[attr-defined]  # that of SQLite has it
                in_memory = connection.alias
                # Its own method does nothing: with its last connection the database would be gone.
                BaseDatabaseWrapper.close(connection)
                continue
        connection.close()
    if in_memory is not None:
        raise ConfigurationError(_IN_MEMORY.format(alias=in_memory))


def before_fork() -> None:
    """No child may share a connection with its parent."""
    for connection in _opened():
        if not connection.in_atomic_block:
            connection.close()


#: The exceptions of the views in one call of a race, by the test client that gets them.
_raised: ContextVar[dict[int, Any] | None] = ContextVar("distlock_testing_raised", default=None)


class _OfCall:
    """``Client.exc_info``, for each call by itself.

    Django tells every test client that waits for an answer of every exception, also of those that views raise
    for others. In threads one error would be raised by all of them.
    """

    def __get__(self, client: Any, owner: object = None) -> Any:
        raised = _raised.get()
        return vars(client).get("exc_info") if raised is None else raised.get(id(client))

    def __set__(self, client: Any, value: Any) -> None:
        raised = _raised.get()
        if raised is None:
            vars(client)["exc_info"] = value
        else:
            vars(client).setdefault("exc_info", None)
            raised[id(client)] = value


@contextmanager
def errors_by_call() -> Iterator[None]:
    """In the block each call of a race hears of its own views' errors only."""
    if "django.test.client" not in sys.modules:
        yield
        return
    from django.test.client import ClientMixin

    ClientMixin.exc_info = _OfCall()  # type: ignore[attr-defined]  # its clients have it, and not their class
    try:
        yield
    finally:
        del ClientMixin.exc_info  # type: ignore[attr-defined]


def begin_call() -> None:
    """In the thread of a call, before it."""
    _raised.set({})
