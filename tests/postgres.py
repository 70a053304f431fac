"""A private PostgreSQL for the tests: a new cluster on a free port of the loopback, gone when they end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from loadtest.postgresql import running_postgresql


@contextlib.contextmanager
def running_postgres() -> Iterator[int]:
    """The port of a PostgreSQL with the superuser ``shop`` and the database ``shop``."""
    with running_postgresql() as url:
        port = urlsplit(url).port
        assert port
        yield port
