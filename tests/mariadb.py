"""A private MariaDB for the tests: new data on a free port of the loopback, gone when they end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from loadtest.mariadb import running_mariadb as running


@contextlib.contextmanager
def running_mariadb() -> Iterator[int]:
    """The port of a MariaDB with the database ``shop`` and the user ``shop``, which has no password."""
    with running() as url:
        port = urlsplit(url).port
        assert port
        yield port
