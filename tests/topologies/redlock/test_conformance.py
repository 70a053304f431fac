from __future__ import annotations

import gc
import threading

import pytest

from distlock.backends.redlock import RedlockBackend, backend, server
from distlock.backends.redlock.backend import drift
from distlock.testing import conformance
from distlock.testing.contenders import LONG, Contender, ask
from tests.redis_keys import FORMAT
from tests.redis_server import eventually
from tests.topologies.redlock.five import Five


@pytest.fixture
def url(five: Five) -> str:
    return five.url


class TestProtocol(
    conformance.UnfairProtocolConformance, conformance.NumberConformance, conformance.LeaseConformance
):
    pass


class TestInspection(conformance.UnfairInspectionConformance):
    # On the servers it lives longer.
    longest = LONG + drift(LONG)
    both_may_break = True

    @pytest.fixture
    def options(self) -> dict[str, object]:
        # Each server is asked, also where the machine is busy.
        return {"io_timeout": 30.0}


class TestNotify(conformance.NotifyConformance):
    pass


class TestFloor(conformance.FloorConformance):
    pass


class TestClose(conformance.CloseConformance):
    pass


def test_a_client_that_is_dropped_leaves_no_thread(url: str) -> None:
    gc.collect()
    before = set(threading.enumerate())
    one, mine = Contender(RedlockBackend(url)), ask("redlock:dropped")
    # As that of an engine does.
    one.sink.__dict__["knows"] = one
    one.held(mine)
    assert one.backend.release(mine)
    assert len(set(threading.enumerate()) - before) == 5
    del one

    def freed() -> bool:
        gc.collect()
        return not set(threading.enumerate()) - before

    eventually(freed, "its threads have ended", pause=0.1)


class TestThreads(conformance.UnfairThreadConformance):
    pass


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    #: Each asks five servers three times. The engine has forgotten all 100,000 with memory.
    names = 200

    @pytest.fixture(autouse=True)
    def _five(self, five: Five, monkeypatch: pytest.MonkeyPatch) -> None:
        self.five = five
        # With the first lock it has all the threads and connections that it will ever have.
        for module in (backend, server):
            monkeypatch.setattr(module, "WORKERS", 1)

    @pytest.fixture
    def options(self) -> dict[str, object]:
        # The counter of a name outlives its lock by that much.
        return {"fence_ttl": 0.05}

    def residue(self) -> int:
        def keys() -> int:
            pattern = f"{FORMAT}:{{kit%3Amany_*"
            return sum(sum(1 for _ in one.client.scan_iter(match=pattern)) for one in self.five)

        eventually(lambda: keys() == 0, "the counters are forgotten")
        return 0


class TestProcesses(conformance.UnfairProcessConformance, conformance.UnfairProcessLeaseConformance):
    pass
