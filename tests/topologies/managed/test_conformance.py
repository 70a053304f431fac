"""The whole kit, with exactly the rights that the page lists."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from distlock.backends.redis.scripts import hold_key
from distlock.testing import conformance
from tests.redis_server import eventually
from tests.topologies.managed.conftest import TAKEN_AWAY, ManagedServer


@pytest.fixture
def url(managed: ManagedServer) -> str:
    return managed.url


@pytest.mark.parametrize("command", TAKEN_AWAY)
def test_it_is_as_bare_as_it_says(managed: ManagedServer, command: str) -> None:
    with pytest.raises(redis.ResponseError, match="unknown command"):
        managed.tell(command)


def test_it_speaks_tls_only(managed: ManagedServer) -> None:
    with pytest.raises(redis.ConnectionError):
        redis.Redis(port=managed.port, retry=Retry(NoBackoff(), 0)).ping()


@pytest.fixture(scope="module", autouse=True)
def _nothing_was_denied(managed: ManagedServer) -> Any:
    yield
    assert managed.client.execute_command("ACL", "LOG") == []  # type: ignore[no-untyped-call]


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
    names = 1000

    @pytest.fixture(autouse=True)
    def _server(self, managed: ManagedServer) -> None:
        self.server = managed

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        # The counter of a name outlives its lock by that much.
        return {"fence_ttl": 0.05}

    def residue(self) -> int:
        def keys() -> int:
            return sum(1 for _ in self.server.client.scan_iter(match="dl:2:{kit%3Amany_*", count=10_000))

        eventually(lambda: keys() == 0, "the counters are forgotten")
        return 0


class TestLatchProtocol(conformance.LatchProtocolConformance):
    pass


class TestLatches(conformance.LatchConformance):
    pass


class TestKilled(conformance.KilledConformance):
    pass


class TestProcesses(conformance.ProcessConformance, conformance.ProcessLeaseConformance):
    @pytest.fixture(autouse=True)
    def _server(self, managed: ManagedServer) -> None:
        self.server = managed

    def waiting(self, name: str) -> int:
        return self.server.client.llen(f"{hold_key(f'kit:{name}')}:queue")
