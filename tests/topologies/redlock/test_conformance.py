from __future__ import annotations

import gc
import threading

import pytest

from distlock.testing import conformance
from distlock.testing.protocol_fixtures import LONG, Contender, ask
from tests.backend_class import new_backend
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
    # On the servers it lives longer, by a hundredth and two milliseconds.
    longest = 1.01 * LONG + 0.002
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
    one, mine = Contender(new_backend(url)), ask("redlock:dropped")
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


class TestProcesses(conformance.UnfairProcessConformance, conformance.UnfairProcessLeaseConformance):
    pass
