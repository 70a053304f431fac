"""How a race treats the connections of Django and SQLAlchemy, and the errors of Django's test client.

Each function imports its framework only if the site has loaded it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from distlock.errors import ConfigurationError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from sqlalchemy import Connection


_DJANGO_IN_MEMORY = (
    "The race used the SQLite database {alias!r}, which is in memory: each thread has a connection of its "
    'own to it, and finds it locked. Let the tests have a file: add "TEST": {{"NAME": "test.sqlite3"}} to '
    "DATABASES[{alias!r}]."
)
_DJANGO_TRANSACTION = (
    "A transaction is open on the database {alias!r}: other threads don't see what was written in it, so "
    "there is nothing to race for. Let the test commit: inherit from TransactionTestCase instead of "
    "TestCase, or in pytest-django write @pytest.mark.django_db(transaction=True)."
)
_SQLALCHEMY_IN_MEMORY = (
    "The race used a SQLite database in memory, by SQLAlchemy: its threads share one connection, and so one "
    "transaction, or have a database each. Let the tests have a file, such as sqlite:////tmp/shop-test.sqlite3."
)

#: The exceptions of the views in one call of a race, by the id of the test client; None: this is no race.
_raised: ContextVar[dict[int, Any] | None] = ContextVar("distlock_testing_raised", default=None)


def _opened() -> Sequence[BaseDatabaseWrapper]:
    """Return the Django connections of the running thread."""
    if "django.db" not in sys.modules:
        return []
    from django.conf import settings
    from django.db import connections

    return connections.all(initialized_only=True) if settings.configured else []


def refuse_open_transaction() -> None:
    """Raise `ConfigurationError` if the test itself has a transaction open, as Django's ``TestCase`` has."""
    for connection in _opened():
        if connection.in_atomic_block:
            raise ConfigurationError(_DJANGO_TRANSACTION.format(alias=connection.alias))


def close_connections() -> None:
    """Close the Django connections of the running thread.

    Raise `ConfigurationError` if one of them was to an SQLite database in memory.
    """
    in_memory = None
    for connection in _opened():
        if connection.connection is not None and connection.vendor == "sqlite":
            from django.db.backends.base.base import BaseDatabaseWrapper

            if connection.is_in_memory_db():  # type: ignore[attr-defined]  # SQLite's wrapper has it
                in_memory = connection.alias
                # The close() of Django's SQLite backend does nothing for a database in memory.
                BaseDatabaseWrapper.close(connection)
                continue
        connection.close()
    if in_memory is not None:
        raise ConfigurationError(_DJANGO_IN_MEMORY.format(alias=in_memory))


def before_fork() -> None:
    """Close Django's connections outside of transactions, because a child must not share them."""
    for connection in _opened():
        if not connection.in_atomic_block:
            connection.close()


class _ExcInfoOfCall:
    """``Client.exc_info``, separate for each call.

    Django reports an exception in a view to every test client that waits for an answer. With threads, all of
    these clients would raise it.
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
    """Give each call of a race in the block the errors of its own views only."""
    if "django.test.client" not in sys.modules:
        yield
        return
    from django.test.client import ClientMixin

    ClientMixin.exc_info = _ExcInfoOfCall()  # type: ignore[attr-defined]  # only instances have it
    try:
        yield
    finally:
        del ClientMixin.exc_info  # type: ignore[attr-defined]


def begin_call() -> None:
    """Make the running thread collect the errors of its own views: see `errors_by_call`."""
    _raised.set({})


@contextmanager
def refusing_sqlalchemy_memory() -> Iterator[None]:
    """Raise `ConfigurationError` after a block in which SQLAlchemy used an SQLite database in memory."""
    if "sqlalchemy" not in sys.modules:
        yield
        return
    from sqlalchemy import event
    from sqlalchemy.engine import Engine
    from sqlalchemy.pool import SingletonThreadPool, StaticPool

    in_memory = False

    def note(connection: Connection, *_: object) -> None:
        nonlocal in_memory
        pool = connection.engine.pool
        if connection.dialect.name == "sqlite" and isinstance(pool, StaticPool | SingletonThreadPool):
            in_memory = True

    event.listen(Engine, "engine_connect", note)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", note)
    if in_memory:
        raise ConfigurationError(_SQLALCHEMY_IN_MEMORY)


def forget_connections_of_parent() -> None:
    """Drop SQLAlchemy's pooled connections in a child process without closing them: its parent uses them."""
    if "sqlalchemy" not in sys.modules:
        return
    from sqlalchemy.engine import Engine

    for one in gc.get_objects():
        # isinstance() would make lazy proxies load their objects.
        if issubclass(type(one), Engine):
            one.dispose(close=False)
