from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distlock.testing import conformance
from distlock.testing.waits import PATIENCE
from tests.stored import spelled


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/locks"


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Where the file backend keeps an entry for each holder and waiter."""
    return tmp_path / "locks" / "v2" / "queue"


class TestProtocol(
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.ReadConformance,
    conformance.PermitConformance,
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


class TestThreads(conformance.ThreadConformance):
    pass


class TestSharing(conformance.SharingConformance):
    pass


class TestSemaphores(conformance.SemaphoreConformance):
    pass


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    #: Each makes files and removes them. The engine has forgotten all 100,000 with memory.
    names = 20_000

    @pytest.fixture(autouse=True)
    def _queue(self, queue: Path) -> None:
        self.queue = queue

    def residue(self) -> int:
        return len(list(self.queue.glob("*/*")))


class TestLatchProtocol(conformance.LatchProtocolConformance):
    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """On a busy machine eight threads that write in turn may take seconds for a hundred turns."""
        return {"busy_timeout": PATIENCE}


class TestLatches(conformance.LatchConformance):
    pass


class TestKilled(conformance.KilledConformance):
    ttl = 0.5


class TestProcesses(conformance.ProcessConformance):
    ttl = 0.5

    @pytest.fixture(autouse=True)
    def _queue(self, queue: Path) -> None:
        self.queue = queue

    def waiting(self, name: str) -> int:
        return len(list(self.queue.glob(f"*/{spelled(f'kit:{name}')[:40]}~*"))) - 1
