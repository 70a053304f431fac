from __future__ import annotations

from typing import Any

import pytest

from distlock.testing import conformance
from loadtest.servers.redis_cluster import RedisCluster
from tests.redis_server import eventually
from tests.stored import hold_key


@pytest.fixture
def url(cluster: RedisCluster) -> str:
    return cluster.url


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


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    names = 2000
    ttl_of_names = 4.0
    #: Enough for each node to have one.
    first_names = 40

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: RedisCluster) -> None:
        self.cluster = cluster

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        # The counter of a name outlives its lock by that much.
        return {"fence_ttl": 0.05}

    def residue(self) -> int:
        def keys() -> int:
            pattern = "dl:2:{kit%3Amany_*"
            return sum(1 for node in self.cluster.primaries for _ in node.client.scan_iter(match=pattern))

        eventually(lambda: keys() == 0, "the counters are forgotten", pause=0.2)
        return 0


class TestLatchProtocol(conformance.LatchProtocolConformance):
    pass


class TestLatches(conformance.LatchConformance):
    #: Each of the three primaries has one that listens there.
    threads = 5


class TestKilled(conformance.KilledConformance):
    pass


class TestProcesses(conformance.ProcessConformance, conformance.ProcessLeaseConformance):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: RedisCluster) -> None:
        self.cluster = cluster

    def waiting(self, name: str) -> int:
        key = f"kit:{name}"
        return int(self.cluster.node_of(key).tell("LLEN", f"{hold_key(key)}:queue"))
