from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.backends import create
from loadtest.postgresql import running_postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database that is ready for locks."""
    with running_postgresql() as url:
        backend = create(url)
        backend.prepare()  # type: ignore[attr-defined]
        backend.close()
        yield url
