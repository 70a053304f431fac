from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest

from distlock import clock
from distlock.backends.base import Acquired, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import MemoryService
from distlock.engine import maintenance
from distlock.engine.critical_section import CriticalSection
from distlock.engine.engine import Engine
from distlock.engine.hold import Hold, NameGrant
from distlock.engine.maintenance import Job, MaintenanceThread
from distlock.engine.sans_io import Call, Commands, ThreadParker, run
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.terms import Terms
from distlock.testing.waits import wait_until


class Recorded(MemoryBackend):
    """A backend that counts renewals, and may be out of reach for them."""

    def __init__(self, service: MemoryService) -> None:
        super().__init__("memory://", service)
        self.renewals: list[int] = []
        self.away = False
        self.fault: Exception | None = None

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        self.renewals.append(len(requests))
        if self.away:
            raise BackendUnavailable("away")
        if self.fault is not None:
            raise self.fault
        return super().renew(requests)


class Kept:
    """An engine in time that the test makes up; the test plays the keeper's thread."""

    def __init__(self) -> None:
        self.now = 0.0
        self.backend = Recorded(MemoryService(now=lambda: self.now))
        self.told: list[str] = []
        self.engine = Engine(
            self.backend,
            ttl=9.0,
            max_hold=30.0,
            max_waiters=9,
            max_waiters_total=9,
            epoch=1,
            on_lost=lambda grant, why: self.told.append(why),
            now=lambda: self.now,
            threads=False,
        )

    def acquire(self, name: str, max_hold: float = 30.0, ttl: float = 9.0) -> NameGrant:
        grant = run(self.engine.acquire(name, name, ThreadParker(), 0.0, Terms(ttl, max_hold)))
        assert grant is not None
        return grant

    def pass_time(self, seconds: float) -> None:
        """Let the keeper do its rounds when it wants to."""
        until = self.now + seconds
        while (pause := run(self.engine.maintenance.tick())) <= until - self.now:
            self.now += max(pause, 0.001)
        self.now = until


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_hold_is_renewed_every_third_of_its_ttl(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.pass_time(10.0)
    assert len(kept.backend.renewals) == 3
    assert grant.remaining() > 5.9


def test_many_holds_are_renewed_in_one_request(kept: Kept) -> None:
    for name in "abcde":
        kept.acquire(name)
        kept.now += 0.1
    kept.pass_time(4.0)
    assert kept.backend.renewals == [5]


def test_nothing_is_renewed_after_the_release(kept: Kept) -> None:
    run(kept.acquire("a")._release())
    kept.pass_time(20.0)
    assert kept.backend.renewals == []


def test_an_unreachable_service_is_asked_again_and_the_loss_told_before_the_lease_ends(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.backend.away = True
    kept.pass_time(8.7)
    assert not grant.lost
    assert len(kept.backend.renewals) > 3
    kept.pass_time(0.2)
    assert grant.lost
    assert kept.told == ["its lease ended before it could be renewed"]
    assert kept.now < 9.0, "the lease still runs on the server: we were told first"


def test_the_log_counts_what_could_not_be_renewed_in_good_english(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.backend.away = True
    kept.acquire("a")
    kept.pass_time(4.0)
    assert "1 lock could not be renewed; trying again: away" in caplog.text
    kept.acquire("b")
    kept.now += 3.0
    kept.pass_time(0.5)
    assert "2 locks could not be renewed; trying again: away" in caplog.text


FAULTS = [ConfigurationError("sessions are too short"), ValueError("a mistake of the backend")]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_that_refuses_a_renewal_is_asked_again_and_the_loss_told(
    kept: Kept, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    grant = kept.acquire("a")
    kept.backend.fault = fault
    kept.pass_time(8.7)
    assert not grant.lost
    assert len(kept.backend.renewals) > 3
    assert f"trying again: {fault}" in caplog.text
    kept.pass_time(0.2)
    assert kept.told == ["its lease ended before it could be renewed"]
    assert kept.now < 9.0, "the lease still runs on the server: we were told first"


def test_a_service_whose_settings_are_mended_in_time_costs_nothing(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.backend.fault = FAULTS[0]
    kept.pass_time(5.0)
    kept.backend.fault = None
    kept.pass_time(20.0)
    assert not grant.lost
    assert kept.told == []


def test_a_service_that_comes_back_in_time_costs_nothing(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.backend.away = True
    kept.pass_time(5.0)
    kept.backend.away = False
    kept.pass_time(20.0)
    assert not grant.lost
    assert kept.told == []


def test_a_hung_holder_is_renewed_no_more_after_max_hold(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.pass_time(29.0)
    assert not grant.lost
    kept.pass_time(11.0)
    assert grant.lost
    assert kept.told == ["it was held longer than max_hold=30 seconds"]
    assert kept.acquire("a").fence > grant.fence


def test_each_lock_has_a_max_hold_of_its_own(kept: Kept) -> None:
    quick, usual, slow = kept.acquire("a", 5.0), kept.acquire("b"), kept.acquire("c", 120.0)
    kept.pass_time(29.0)
    assert (quick.lost, usual.lost, slow.lost) == (True, False, False)
    assert kept.told == ["it was held longer than max_hold=5 seconds"]
    kept.pass_time(90.0)
    assert (usual.lost, slow.lost) == (True, False)
    kept.pass_time(11.0)
    assert slow.lost


def test_a_hold_is_not_passed_on_to_a_lock_of_another_ttl(kept: Kept) -> None:
    """Its lease is what a crash costs. A caller that asks for a shorter one gets it from the lock service."""
    first = kept.acquire("a", ttl=600.0)
    waiting = kept.engine.acquire("a", "a", ThreadParker(), math.inf, Terms(9.0, 30.0))
    next(waiting)
    run(first._release())
    second = run(waiting)
    assert second is not None
    assert second._hold.request.ttl == 9.0


def test_a_hung_holder_whose_renewal_is_due_does_not_keep_the_keeper_awake(kept: Kept) -> None:
    kept.acquire("a")
    kept.pass_time(26.0)
    kept.backend.away = True
    kept.pass_time(4.5)
    kept.engine.renewer.holds.pop(kept.engine.queues.by_key["a"].hold or pytest.fail("a is held"))
    kept.engine.renewer.add(kept.engine.queues.by_key["a"].hold or pytest.fail("a is held"))
    assert run(kept.engine.maintenance.tick()) > 1.0


def test_a_short_lease_beside_many_long_ones_costs_a_look_at_the_short_one(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Hold] = []
    renewer = kept.engine.renewer
    honest = renewer._plan
    monkeypatch.setattr(renewer, "_plan", lambda hold: looks.append(hold) or honest(hold))
    for name in range(1000):
        kept.acquire(f"long_{name}", ttl=600.0)
    kept.acquire("short", ttl=0.5)
    looks.clear()
    kept.pass_time(20.0)
    assert len(kept.backend.renewals) >= 20.0 / 0.5
    assert len(looks) < 10 * len(kept.backend.renewals)
    assert len(renewer.holds) == 1001


def test_what_was_planned_for_holds_that_have_ended_does_not_pile_up(kept: Kept) -> None:
    kept.acquire("kept")
    for _ in range(1000):
        run(kept.acquire("a")._release())
    assert len(kept.engine.renewer._planned_checks) < 100
    kept.pass_time(20.0)
    assert set(kept.backend.renewals) == {1}


def test_a_hold_that_ends_before_anybody_looks_is_never_planned(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Hold] = []
    renewer = kept.engine.renewer
    honest = renewer._plan
    monkeypatch.setattr(renewer, "_plan", lambda hold: planned.append(hold) or honest(hold))
    for _ in range(10):
        run(kept.acquire("a")._release())
    kept.pass_time(1.0)
    assert planned == []


def thread_of(section: CriticalSection, job: Job) -> MaintenanceThread:
    thread = MaintenanceThread(section, clock.now, begun=lambda: None, threads=True)
    thread.jobs = (job,)
    return thread


class _Idle:
    """A job with nothing to do."""

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        yield from ()

    def due(self, now: float) -> float:
        return math.inf

    def is_idle(self) -> bool:
        return True


class _Recorded(ThreadParker):
    def __init__(self) -> None:
        super().__init__()
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_locks_that_come_and_go_do_not_wake_an_idle_keeper() -> None:
    section = CriticalSection()
    keeper = thread_of(section, _Idle())
    with section.mutex:
        keeper.wake_before(0.0)
    wait_until(lambda: keeper.wakes_at != math.inf, "it naps")
    own, keeper.parker = keeper.parker, _Recorded()
    for due, woken in ((clock.now() + 1.0, 0), (clock.now() + 3.0, 0), (0.0, 1)):
        with section.mutex:
            keeper.wake_before(due)
        assert keeper.parker.woken == woken
    keeper.parker = own
    keeper.stop()


def test_nor_do_they_wake_one_that_keeps_another(kept: Kept) -> None:
    kept.acquire("kept")
    thread = kept.engine.maintenance
    while thread.wakes_at < kept.now + 1.5 or thread.wakes_at == math.inf:
        kept.pass_time(0.1)
    thread.thread, thread.parker = threading.current_thread(), (parker := _Recorded())
    for _ in range(10):
        run(kept.acquire("a")._release())
    assert parker.woken == 0


def test_a_keeper_with_nothing_to_keep_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LINGER", 0.05)
    monkeypatch.setattr(maintenance, "NAP", 0.01)
    section = CriticalSection()
    keeper = thread_of(section, _Idle())
    with section.mutex:
        keeper.wake_before(0.0)
    wait_until(lambda: keeper.thread is None, "it has ended")


class _Deadly:
    """A job that ends the thread that does it, once."""

    def __init__(self) -> None:
        self.played = 0
        self.died: threading.Thread | None = None
        self.lived = threading.Event()

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        self.played += 1
        if self.played == 1:
            self.died = threading.current_thread()
            raise SystemExit
        self.lived.set()
        yield from ()

    def due(self, now: float) -> float:
        return math.inf

    def is_idle(self) -> bool:
        return True


def test_a_keeper_that_cannot_start_is_logged_once_until_it_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(maintenance, "LINGER", 0.05)
    monkeypatch.setattr(maintenance, "NAP", 0.01)
    section = CriticalSection()
    keeper = thread_of(section, _Idle())
    for times in (1, 2):
        with monkeypatch.context() as patch, section.mutex:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                keeper.wake_before(0.0)
        assert caplog.text.count("No maintenance thread could be started") == times
        with section.mutex:
            keeper.wake_before(0.0)
        wait_until(lambda: keeper.thread is None, "it has ended")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_keeper_that_has_died_is_started_again() -> None:
    rounds, section = _Deadly(), CriticalSection()
    keeper = thread_of(section, rounds)
    with section.mutex:
        keeper.wake_before(0.0)
    wait_until(lambda: rounds.played == 1 and keeper.thread is None, "the first one has died")
    assert rounds.died is not None
    rounds.died.join(60.0)  # What is said of its end is this test's.
    with section.mutex:
        keeper.wake_before(0.0)
    assert rounds.lived.wait(60.0)
    keeper.stop()


def test_doubt_makes_every_hold_be_looked_at_now(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.backend.release(grant._hold.request)
    kept.engine.sink.missed_notifications()
    kept.pass_time(0.0)
    assert grant.lost
    assert kept.told == ["it was broken, or the lock service forgot it or gave it on"]


@pytest.mark.fault("F43")
def test_time_in_which_the_machine_was_suspended_counts(kept: Kept) -> None:
    grant = kept.acquire("a")
    kept.now += 3600.0
    assert grant.lost
    assert grant.remaining() == 0


#: A process with one thread may enter a time namespace, where CLOCK_BOOTTIME is ahead by an hour and
#: CLOCK_MONOTONIC is not: to the process that is what a suspended machine looks like. A holder that may not
#: make one by itself makes one of users around it.
SUSPENDED_FOR_AN_HOUR = """
import ctypes, os, sys, time
from pathlib import Path
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import MemoryService
from distlock.engine.engine import Engine
from distlock.engine.sans_io import ThreadParker, run
from distlock.terms import Terms

TIME, USERS = 0x80, 0x10000000
clock = {"our own": {}, "monotonic": {"now": time.monotonic}}[sys.argv[1]]
backend = MemoryBackend("memory://", MemoryService(**clock))
terms = {"ttl": 9.0, "max_hold": 30.0, "max_waiters": 9, "max_waiters_total": 9, "epoch": 1}
engine = Engine(backend, threads=False, **terms, **clock)
grant = run(engine.acquire("a", "a", ThreadParker(), 0.0, Terms(9.0, 30.0)))
assert not grant.lost
library = ctypes.CDLL(None)
if library.unshare(TIME) and library.unshare(USERS | TIME):
    print("no right")
    sys.exit()
Path("/proc/self/timens_offsets").write_text("boottime 3600 0\\n")
namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
assert library.setns(namespace, TIME) == 0
print("lost" if grant.lost else "held")
"""


@pytest.mark.fault("F43")
@pytest.mark.fault("F43", control=True)
@pytest.mark.parametrize(("now", "finds"), [("our own", "lost"), ("monotonic", "held")])
def test_the_clock_of_the_engine_counts_an_hour_of_suspension_and_the_monotonic_one_does_not(
    now: str, finds: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SUSPENDED_FOR_AN_HOUR, now],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if ran.stdout == "no right\n":
        pytest.skip("no right to make a time namespace")
    assert (ran.stdout, ran.stderr) == (f"{finds}\n", "")


def test_a_hung_holder_is_not_renewed_after_max_hold_even_if_notifications_may_be_missing(kept: Kept) -> None:
    kept.acquire("a", max_hold=5.0)
    kept.pass_time(5.5)
    kept.backend.renewals.clear()
    kept.engine.sink.missed_notifications()
    kept.pass_time(0.1)
    assert kept.backend.renewals == []


def test_who_outlives_many_others_is_still_renewed(kept: Kept) -> None:
    grant = kept.acquire("a", max_hold=600.0)
    others = [kept.acquire(f"p{number}", ttl=90.0) for number in range(200)]
    kept.pass_time(1.0)
    for other in others:
        run(other._release())
    last = kept.acquire("b")
    kept.pass_time(1.0)
    run(last._release())
    kept.pass_time(20.0)
    assert not grant.lost


# -- requests that nobody wants any more ---------------------------------------------------------


def interrupted(kept: Kept, calls: int) -> None:
    """A caller is interrupted when the lock service has carried out so many of its calls."""
    steps = kept.engine.acquire("a", "a", ThreadParker(), 5.0, Terms(9.0, 30.0))
    step = next(steps)
    for _ in range(calls):
        assert isinstance(step, Call)
        step = steps.send(step.function(*step.arguments))
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())


def test_a_lock_service_that_does_not_answer_is_asked_to_cancel_once_a_second_at_most(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[float]()

    def cancel(request: LockRequest, deadline: float = math.inf) -> bool:
        tried.append(kept.now)
        raise BackendUnavailable("away")

    monkeypatch.setattr(kept.backend, "cancel", cancel)
    interrupted(kept, calls=0)
    kept.pass_time(10.0)
    assert 5 < len(tried) < 12
    kept.pass_time(20.0)
    tried.clear()
    kept.pass_time(20.0)
    assert tried == [], "the request has ended by itself"


def test_a_request_that_was_answered_is_cancelled_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    other = MemoryBackend("memory://", kept.backend.service)
    assert isinstance(other.request(LockRequest("a", "f" * 48, 600.0, 1)), Acquired)
    honest, cancelled = kept.backend.cancel, list[str]()

    def cancel(request: LockRequest, deadline: float = math.inf) -> bool:
        cancelled.append(request.key)
        return honest(request, deadline)

    monkeypatch.setattr(kept.backend, "cancel", cancel)
    interrupted(kept, calls=1)
    kept.pass_time(10.0)
    assert cancelled == ["a"]
