"""Its own protocol, and what users rely on: the kit."""

from __future__ import annotations

import psycopg
import pytest

from distlock.testing import conformance
from distlock.testing.protocol_fixtures import Contender, ask


@pytest.fixture
def url(server: str) -> str:
    return server


class TestProtocol(
    conformance.ProtocolConformance, conformance.NumberConformance, conformance.LeaseConformance
):
    @pytest.mark.attack("A36")
    def test_only_the_token_proves_the_hold(self, one: Contender, two: Contender, key: str) -> None:
        """In the session that has it: no other can renew it."""
        first, forged = ask(key), ask(key)
        one.held(first)
        assert one.backend.release(forged) is False
        assert one.backend.renew([forged, first]) == [False, True]
        assert two.backend.renew([first]) == [False]
        two.queued(ask(key))


class TestFloor(conformance.FloorConformance):
    pass


class TestClose(conformance.CloseConformance):
    pass


class TestThreads(conformance.ThreadConformance):
    pass


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    #: A new name is a row, which is committed.
    names = 500

    def residue(self) -> int:
        # A row for each name that was ever locked is what it costs.
        return 0


class TestProcesses(conformance.ProcessConformance, conformance.ProcessLeaseConformance):
    @pytest.fixture(autouse=True)
    def _server(self, server: str) -> None:
        self.server = server

    def waiting(self, name: str) -> int:
        with psycopg.connect(self.server) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_locks JOIN distlock_name ON objid = id::oid "
                "WHERE locktype = 'advisory' AND NOT granted AND name = %s",
                [f"kit:{name}"],
            ).fetchone()
        assert found is not None
        return int(found[0])
