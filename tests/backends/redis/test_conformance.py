from __future__ import annotations

from typing import Any

import pytest

from distlock.testing import conformance
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


class TestProtocol(
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.LeaseConformance,
    conformance.PostingConformance,
    conformance.AwaitingConformance,
    conformance.HandingConformance,
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
):
    pass


class TestFloor(conformance.FloorConformance):
    pass


class TestInspection(conformance.InspectionConformance):
    pass


class TestNotify(conformance.NotifyConformance):
    pass


class TestRevocation(conformance.RevocationConformance):
    pass


class TestClose(conformance.CloseConformance):
    pass


class TestSharing(conformance.SharingConformance):
    pass


class TestSemaphores(conformance.SemaphoreConformance):
    pass


class TestThreads(conformance.ThreadConformance):
    pass


@pytest.mark.fault("F41")
class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    #: Each goes over the wire. The engine has forgotten all 100,000 with memory.
    names = 20_000
    ttl_of_names = 4.0

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server = redis_server

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        # The counter of a name outlives its lock by that much.
        return {"fence_ttl": 0.05}

    def residue(self) -> int:
        def keys() -> int:
            return sum(1 for _ in self.server.client.scan_iter(match="dl:2:{kit%3Amany_*", count=10_000))

        eventually(lambda: keys() == 0, "the counters are forgotten", pause=0.2)
        return 0


class TestLatchProtocol(conformance.LatchProtocolConformance):
    pass


class TestLatches(conformance.LatchConformance):
    pass


class TestKilled(conformance.KilledConformance):
    pass


class TestProcesses(conformance.ProcessConformance, conformance.ProcessLeaseConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server = redis_server

    def waiting(self, name: str) -> int:
        return self.server.client.llen(f"{hold_key(f'kit:{name}')}:queue")
