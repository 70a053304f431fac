"""A wait ends on time however the lock service behaves: each call to it is told by when."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator

import pytest

import distlock
from distlock import clock
from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.testing.waits import engine_of, wait_for_waiters, wait_until
from tests.backend_class import backend_class

MemoryBackend = backend_class("memory://")

#: How much later than its caller gives up a call may end, seconds.
REPLY_GRACE = 0.25
#: No passing run comes near it, seconds.
CEILING = 30.0


class Hanging(MemoryBackend):
    """A service that can be told to answer nothing. What it is asked then ends at its deadline."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.hangs = False
        self.asked = threading.Event()
        self.deadlines: list[float] = []

    def _hang(self, deadline: float) -> None:
        self.deadlines.append(deadline)
        if self.hangs:
            self.asked.set()
            # The keeper is in no hurry: what it asks is bounded by the service.
            threading.Event().wait(0.05 if deadline == math.inf else max(0.0, deadline - clock.now()))
            raise distlock.BackendUnavailable("It hangs.")

    def request(self, ask: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        self._hang(deadline)
        answer = super().request(ask)
        return Queued(0.01) if isinstance(answer, Queued) else answer

    def cancel(self, ask: LockRequest, deadline: float = math.inf) -> bool:
        self._hang(deadline)
        return super().cancel(ask)

    def release(self, ask: LockRequest, deadline: float = math.inf) -> bool:
        self._hang(deadline)
        return super().release(ask)


class Deaf(Hanging):
    """A client that hears no notification."""

    def notified(self, key: str) -> None:
        pass

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        pass


def client(url: str) -> distlock.Locks:
    return distlock.connect(url, backend=f"{__name__}.Hanging", max_waiters=1000, max_waiters_total=1000)


def service_of(locks: distlock.Locks) -> Hanging:
    backend = engine_of(locks).backend
    assert isinstance(backend, Hanging)
    return backend


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


@pytest.fixture
def locks(url: str) -> Iterator[distlock.Locks]:
    made = client(url)
    yield made
    service_of(made).hangs = False
    made.close()


@pytest.fixture
def other(url: str) -> Iterator[distlock.Locks]:
    made = client(url)
    yield made
    made.close()


def test_a_service_that_hangs_is_told_by_when_the_wait_is_over(locks: distlock.Locks) -> None:
    service = service_of(locks)
    service.hangs = True
    began = clock.now()
    with pytest.raises(distlock.BackendUnavailable):
        locks.lock("a").acquire(timeout=0.2)
    assert 0.2 <= clock.now() - began < CEILING / 2
    deadline, *_ = service.deadlines
    assert began + 0.2 <= deadline <= clock.now() + 0.2 + REPLY_GRACE
    assert engine_of(locks).queues.by_key == {}


@pytest.mark.parametrize("timeout", [0, -1])
def test_without_a_time_out_the_service_keeps_time_itself(locks: distlock.Locks, timeout: float) -> None:
    assert locks.lock("a").acquire(timeout=timeout)
    assert service_of(locks).deadlines == [math.inf]


def test_a_service_that_hangs_while_one_waits_does_not_prolong_the_wait(
    locks: distlock.Locks, other: distlock.Locks
) -> None:
    service = service_of(locks)
    ended: list[object] = []
    waiter = threading.Thread(target=lambda: ended.append(locks.lock("a").acquire(timeout=1)))
    with other.lock("a"):
        began = clock.now()
        waiter.start()
        wait_until(lambda: len(service.deadlines) > 1, "it is in the queue")
        service.hangs = True
        waiter.join(CEILING)
        # It had been told that somebody holds the lock: that is a time-out, and no outage.
        assert ended == [None]
        in_time = [deadline for deadline in service.deadlines if deadline < math.inf]
        assert all(deadline <= began + CEILING / 2 for deadline in in_time)
        service.hangs = False
    # The keeper gives up its place.
    wait_until(lambda: not engine_of(locks).cancellations, "the place is given up")
    assert not other.lock("a").locked()


def test_a_close_gives_up_what_could_not_be_given_up_before(
    locks: distlock.Locks, other: distlock.Locks
) -> None:
    service = service_of(locks)
    waiter = threading.Thread(target=lambda: locks.lock("a").acquire(timeout=1))
    with other.lock("a"):
        waiter.start()
        wait_until(lambda: len(service.deadlines) > 1, "it is in the queue")
        service.hangs = True
        waiter.join(CEILING)
        assert engine_of(locks).cancellations
        service.hangs = False
        # Later, the keeper would open the backend again, and leave it open.
        locks.close()
        assert not engine_of(locks).cancellations


def test_an_answer_that_comes_too_late_for_one_is_waited_for_by_those_with_more_time(
    locks: distlock.Locks,
) -> None:
    service = service_of(locks)
    service.hangs = True
    ended: dict[str, object] = {}

    def wait(name: str, timeout: float) -> None:
        try:
            ended[name] = locks.lock("a").acquire(timeout=timeout)
        except distlock.BackendUnavailable as error:
            ended[name] = error

    hasty = threading.Thread(target=wait, args=("hasty", 0.3))
    hasty.start()
    assert service.asked.wait(CEILING)
    patient = threading.Thread(target=wait, args=("patient", CEILING))
    patient.start()
    wait_for_waiters(locks, 2)
    service.hangs = False
    hasty.join(CEILING)
    patient.join(CEILING)
    assert isinstance(ended["hasty"], distlock.BackendUnavailable)
    assert isinstance(ended["patient"], distlock.Grant)


def test_several_names_have_one_deadline_also_for_giving_back(
    locks: distlock.Locks, other: distlock.Locks
) -> None:
    service = service_of(locks)
    with other.lock("c"):
        began = clock.now()
        assert locks.lock("a", "b", "c").acquire(timeout=0.2) is None
        # Three requests, one place in a queue, two holds.
        assert len(service.deadlines) >= 6
        latest = clock.now() + REPLY_GRACE
        assert all(began + 0.2 <= deadline <= latest for deadline in service.deadlines)


def test_tasks_that_get_no_thread_in_time_do_not_wait_for_one(locks: distlock.Locks) -> None:
    """The calls of tasks share a few threads, which a service that hangs keeps busy."""
    service = service_of(locks)
    service.hangs = True
    ends: list[float] = []

    async def buy(number: int, timeout: float) -> None:
        with pytest.raises(distlock.BackendUnavailable):
            await locks.lock(f"product_{number}").aacquire(timeout=timeout)
        ends.append(clock.now())

    async def main() -> float:
        slow = [asyncio.ensure_future(buy(number, 3)) for number in range(16)]
        while len(service.deadlines) < 16:
            await asyncio.sleep(0.001)
        await asyncio.gather(*[buy(number, 0.1) for number in range(16, 40)])
        over = clock.now()
        await asyncio.gather(*slow)
        return over

    over = asyncio.run(main())
    assert sum(deadline < math.inf for deadline in service.deadlines) == 16
    assert over <= min(ends[-16:])


def test_who_hears_no_notification_asks_again_soon(url: str, other: distlock.Locks) -> None:
    locks = distlock.connect(url, backend=f"{__name__}.Deaf")
    grant = other.lock("a").acquire()
    assert grant is not None
    waiter = threading.Thread(target=lambda: locks.lock("a").acquire(timeout=-1), daemon=True)
    waiter.start()
    wait_until(lambda: other.inspect("a").waiting == 1, "it waits")
    grant.release()
    waiter.join(CEILING)
    assert not waiter.is_alive()
    locks.close()
