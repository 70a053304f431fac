"""What threads and forked processes need where SQLAlchemy is. Nothing is imported where it is not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distlock.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Connection

_IN_MEMORY = (
    "The race used a SQLite database in memory, by SQLAlchemy: its threads share one connection, and so one "
    "transaction, or have a database each. Let the tests have a file, such as sqlite:////tmp/shop-test.sqlite3."
)


@contextmanager
def refusing_memory() -> Iterator[None]:
    """At the end raise `ConfigurationError` if the block has used a database that no race can use."""
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
        raise ConfigurationError(_IN_MEMORY)


def after_fork() -> None:
    """In the child: forget the pooled connections, which are the parent's."""
    if "sqlalchemy" not in sys.modules:
        return
    from sqlalchemy.engine import Engine

    for one in gc.get_objects():
        # A lazy stand-in would answer isinstance() by looking for its object.
        if issubclass(type(one), Engine):
            one.dispose(close=False)
