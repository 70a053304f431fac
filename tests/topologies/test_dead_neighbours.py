"""A process that holds a lock for a fenced guard is killed, and the lock service has several servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.servers.lock_services import open_lock_service
from tests.fence.instances import PATIENT, database, two

__all__ = ["database"]


@pytest.mark.parametrize("backend", ["cluster", "redlock", "sentinel"])
def test_its_neighbour_releases_the_lock(backend: str, database: str, tmp_path: Path) -> None:
    with (
        open_lock_service(backend, tmp_path) as service,
        two(database, service, fence=True, timeout=PATIENT) as (one, other, stock),
    ):
        one.tell("sell before COMMIT")
        assert one.says() == "at before COMMIT"
        other.tell("sell")
        one.kill()
        # Its time-out is shorter than the lease.
        assert other.says() == "answered 200"
        assert (stock.sellers(), stock.left()) == ("flask", 0)
