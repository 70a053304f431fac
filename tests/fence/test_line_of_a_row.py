"""The line of those that wait for a row, and why ``BACKEND: "database"`` has no readers.

Readers of one row are let in by the database. Where it lets a reader pass a writer that waits, readers that
never cease keep writers out for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from tests.databases import on
from tests.fence.test_passing import grant, passes, until_it_waits

SHARE = {"postgresql": "FOR SHARE NOWAIT", "mysql": "LOCK IN SHARE MODE NOWAIT"}


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that shares the row with other readers, and waits for nobody."""
    with engine.begin() as connection:
        connection.execute(text(f"SELECT number FROM distlock_fence {SHARE[engine.dialect.name]}")).all()
        yield connection


@on("postgresql")
def test_postgresql_lets_readers_of_a_row_pass_a_writer_that_waits(engine: Engine) -> None:
    passes(engine, grant(1))
    with ThreadPoolExecutor(1) as pool:
        reader = reading(engine)
        reader.__enter__()
        writer = pool.submit(passes, engine, grant(2))
        until_it_waits(engine, writer)
        # The first reader, for which the writer waits, has long ended; and so has each one after it.
        for _ in range(5):
            later = reading(engine)
            later.__enter__()
            reader.__exit__(None, None, None)
            reader = later
        until_it_waits(engine, writer)
        reader.__exit__(None, None, None)
        writer.result(timeout=60)


@on("mariadb")
def test_mariadb_has_one_line_for_readers_and_writers_of_a_row(engine: Engine) -> None:
    passes(engine, grant(1))
    with ThreadPoolExecutor(1) as pool:
        with reading(engine), reading(engine):
            writer = pool.submit(passes, engine, grant(2))
            until_it_waits(engine, writer)
            with pytest.raises(OperationalError, match=r"NOWAIT|Lock wait"), reading(engine):
                raise AssertionError("it has passed the writer")
        writer.result(timeout=60)
