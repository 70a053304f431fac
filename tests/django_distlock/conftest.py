from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[int]:
    """The port of a private PostgreSQL."""
    with running_postgres() as port:
        yield port
