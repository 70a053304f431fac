from __future__ import annotations

from typing import Any

import pytest

from distlock.testing import conformance
from distlock.testing.protocol_fixtures import LONG
from distlock.testing.waits import PATIENCE
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


@pytest.fixture
def url(zookeeper_server: ZooKeeperServer) -> str:
    return zookeeper_server.url


class Patient:
    """Gives a busy machine time to open each session: Java may take seconds for the first one over TLS."""

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        return {"io_timeout": PATIENCE}


class TestProtocol(
    Patient,
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.LeaseConformance,
    conformance.PostingConformance,
    conformance.AwaitingConformance,
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
):
    pass


class TestInspection(Patient, conformance.InspectionConformance):
    #: Of a lease the whole is known, and that is its session's.
    longest = 1.3 * LONG


class TestNotify(Patient, conformance.NotifyConformance):
    pass


class TestRevocation(Patient, conformance.RevocationConformance):
    pass


class TestClose(Patient, conformance.CloseConformance):
    pass


class TestThreads(Patient, conformance.ThreadConformance):
    pass


class TestSharing(Patient, conformance.SharingConformance):
    pass


class TestSemaphores(Patient, conformance.SemaphoreConformance):
    pass


class TestCarts(Patient, conformance.CartConformance):
    pass


class TestTroubles(Patient, conformance.TroubleConformance):
    #: A lock costs two writes to disk, and its node two more. With all 100,000 it takes minutes.
    names = 1000

    @pytest.fixture(autouse=True)
    def _server(self, zookeeper_server: ZooKeeperServer) -> None:
        self.server = zookeeper_server

    def residue(self) -> int:
        # The nodes of the locks that were used just now are kept for five seconds.
        eventually(lambda: not self.used(), "the nodes of unused locks are gone", patience=15.0)
        return 0

    def used(self) -> list[str]:
        return [name for name in self.server.locks() if name.startswith("kit%3Amany_")]


class TestLatchProtocol(Patient, conformance.LatchProtocolConformance):
    pass


class TestLatches(Patient, conformance.LatchConformance):
    pass


class TestKilled(Patient, conformance.KilledConformance):
    pass


class TestProcesses(Patient, conformance.ProcessConformance, conformance.ProcessLeaseConformance):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper_server: ZooKeeperServer) -> None:
        self.server = zookeeper_server

    def waiting(self, name: str) -> int:
        return len(self.server.children(f"kit:{name}")) - 1
