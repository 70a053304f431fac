"""Who is refused, and who is not, in time that the tests make up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from distlock import admission
from distlock.admission import REMEMBERED, Admission, Pace
from distlock.errors import TooManyWaiters
from distlock.grant import NameGrant
from distlock.room import Room, Rooms, Waiter
from distlock.steps import Call, Park, Steps
from distlock.turns import Turns
from tests.engine.simulation import Process, SimulatedGate, Simulation

TIMEOUT = 5.0


class Caller:
    """One call of `Engine.acquire`, taken as far as it goes whenever somebody says so."""

    def __init__(self, process: Process, name: str, timeout: float) -> None:
        self.engine = process.engine
        self.gate = SimulatedGate()
        self.grant: NameGrant | None = None
        self.done = False
        self._steps = self.engine.acquire(name, name, self.gate, timeout, self.engine.ttl)
        self._step: Call | Park = next(self._steps)
        self._calls()

    def go(self) -> None:
        """Go on, as a thread does that was woken, or whose sleep is over."""
        if not self.done:
            self._send(None)
            self._calls()

    def leave(self) -> None:
        assert self.grant is not None
        for step in self.engine.release(self.grant):
            assert isinstance(step, Call)
            step.function(*step.arguments)

    def _calls(self) -> None:
        while not self.done and isinstance(self._step, Call):
            self._send(self._step.function(*self._step.arguments))

    def _send(self, answer: object) -> None:
        try:
            self._step = self._steps.send(answer)
        except StopIteration as stop:
            self.grant, self.done = stop.value, True


class Scene(Simulation):
    """Processes without callers of their own, and a clock that stands still until it is told to go on."""

    def __init__(self, processes: int = 1) -> None:
        super().__init__(0, processes=processes, callers=0, settings=UNCAPPED)
        self.present = list[Caller]()

    def come(self, name: str = "a", timeout: float = TIMEOUT, process: int = 0) -> Caller:
        # One that nobody keeps is collected, and so leaves the line.
        self.present.append(Caller(self.all[process], name, timeout))
        return self.present[-1]

    def serve(self, callers: list[Caller], seconds: float) -> None:
        """Each of *callers* holds the lock for so long, one after the other."""
        for caller in callers:
            caller.go()
            assert caller.grant is not None
            self.now += seconds
            caller.leave()

    def slow(self, seconds: float, name: str = "a", count: int = 40) -> None:
        """Let a process know a name as one that is held for so long."""
        self.serve([self.come(name, math.inf) for _ in range(count)], seconds)


UNCAPPED = {"ttl": 1000.0, "max_hold": math.inf, "max_waiters": None, "max_waiters_total": None}


# -- who comes in ----------------------------------------------------------------------------------


def test_the_first_burst_comes_in() -> None:
    scene = Scene()
    callers = [scene.come() for _ in range(50)]
    scene.serve(callers, 0.005)


def test_who_is_next_comes_in_however_long_it_takes() -> None:
    scene = Scene()
    scene.slow(30.0)
    holder = scene.come()
    scene.now += 100.0
    head = scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()
    holder.leave()
    head.go()
    assert head.grant is not None


def test_a_line_that_is_too_long_is_refused_and_a_shorter_one_is_not() -> None:
    scene = Scene()
    scene.slow(1.0)
    scene.come()
    for _ in range(4):
        scene.come()
    # This one would be served after five seconds, which is all that it has.
    with pytest.raises(TooManyWaiters) as refusal:
        scene.come()
    assert refusal.value.name == "a"
    assert refusal.value.expected_wait == pytest.approx(5.0, rel=0.2)
    assert "'a'" in str(refusal.value)
    assert "time-out" in str(refusal.value)


def test_patience_decides() -> None:
    scene = Scene()
    scene.slow(1.0)
    for _ in range(10):
        scene.come(timeout=20.0)
    with pytest.raises(TooManyWaiters):
        scene.come(timeout=5.0)
    scene.come(timeout=20.0)


def test_patience_without_limit_is_never_refused() -> None:
    scene = Scene()
    scene.slow(1000.0)
    callers = [scene.come(timeout=math.inf) for _ in range(100)]
    scene.now += 10_000.0
    callers.append(scene.come(timeout=math.inf))
    scene.serve(callers, 0.0)


def test_a_quiet_hour_is_no_wait() -> None:
    scene = Scene(processes=2)
    scene.slow(0.01)
    scene.now += 3600.0
    elsewhere = scene.come(process=1)
    callers = [scene.come() for _ in range(10)]
    elsewhere.leave()
    scene.serve(callers, 0.01)


def test_one_slow_holder_does_not_make_the_whole_line_slow() -> None:
    """What is behind it is served in half a second: a pause of a database refuses nobody."""
    scene = Scene()
    scene.slow(0.005, count=30)
    callers = [scene.come() for _ in range(30)]
    scene.now += 0.3
    callers.append(scene.come())
    scene.serve(callers, 0.005)


# -- what is counted -------------------------------------------------------------------------------


def test_the_time_since_the_last_grant_counts() -> None:
    """A holder hangs: nobody is stored behind it, though the line was fast so far."""
    scene = Scene()
    scene.slow(0.01)
    scene.come()
    scene.come()
    scene.now += 4.1
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_the_turns_of_other_processes_count() -> None:
    """Two processes, one second each: a room has its turn every two seconds."""
    scene = Scene(processes=2)
    lines = [[scene.come(timeout=math.inf, process=process) for _ in range(12)] for process in (0, 1)]
    scene.serve([caller for pair in zip(*lines, strict=True) for caller in pair], 1.0)
    scene.come(process=1)
    scene.come()
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_waits_that_timed_out_count() -> None:
    """Who comes after them is a new line: it must not begin as hopefully as they did."""
    scene = Scene(processes=2)
    scene.come(process=1)
    waiters = [scene.come() for _ in range(8)]
    scene.now += TIMEOUT
    for waiter in waiters:
        waiter.go()
        assert waiter.done
        assert waiter.grant is None
    assert not scene.all[0].engine.rooms.by_key
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_who_tries_once_counts_for_nothing() -> None:
    scene = Scene(processes=2)
    scene.come(process=1)
    for _ in range(100):
        scene.now += 1.0
        assert scene.come(timeout=0.0).done
    for _ in range(10):
        scene.come()


def test_a_line_that_becomes_fast_is_long_again_soon() -> None:
    scene = Scene()
    scene.slow(3.0)
    scene.slow(0.005, count=30)
    for _ in range(50):
        scene.come()


# -- what is remembered ----------------------------------------------------------------------------


def test_a_line_that_was_slow_is_remembered_when_all_have_gone() -> None:
    scene = Scene()
    scene.slow(3.0)
    assert not scene.all[0].engine.rooms.by_key
    scene.come()
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_what_is_remembered_fades() -> None:
    scene = Scene()
    scene.slow(2.0)
    scene.now += 120.0
    for _ in range(50):
        scene.come()


def test_only_so_many_names_are_remembered_and_only_those_that_were_waited_for() -> None:
    scene = Scene()
    rooms = scene.all[0].engine.rooms
    for number in range(REMEMBERED + 10):
        scene.serve([scene.come(f"alone_{number}")], 0.0)
    assert not rooms.admission._remembered
    for number in range(REMEMBERED + 10):
        scene.slow(1.0, f"hot_{number}", count=2)
    assert len(rooms.admission._remembered) == REMEMBERED
    assert f"hot_{REMEMBERED + 9}" in rooms.admission._remembered


# -- a slow view under load ------------------------------------------------------------------------


class Rush(Simulation):
    """Buyers of one product who come again and again, on several processes, while it is held for a second."""

    def __init__(self, processes: int, until: float = 60.0) -> None:
        super().__init__(7, processes=processes, callers=0, settings={**UNCAPPED, "ttl": 30.0})
        self.until = until
        self.admitted = self.in_vain = self.sold = 0
        for number in range(processes * 16):
            process = self.all[number % processes]
            self.start(self.buyer(process), process)
        assert self.run(10_000_000) == []

    def buyer(self, process: Process) -> Steps[None]:
        while self.now < self.until:
            asked = self.now
            late = asked > TIMEOUT
            try:
                grant = yield from process.engine.acquire("a", "a", SimulatedGate(), TIMEOUT, 30.0)
            except TooManyWaiters:
                yield Park(SimulatedGate(), 0.25)
                continue
            self.admitted += late
            if grant is None:
                self.in_vain += late
                continue
            self.sold += 1
            yield Park(SimulatedGate(), 1.0)
            yield from process.engine.release(grant)


def test_behind_a_slow_view_hardly_anybody_waits_in_vain() -> None:
    rush = Rush(processes=2)
    assert rush.in_vain < 0.05 * rush.admitted
    # And the lock was never idle for want of somebody to take it.
    assert rush.sold > 0.9 * rush.until / 1.1


# -- the tests are tested --------------------------------------------------------------------------


def nobody_is_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "expected_wait", lambda room, now: 0.0)


def who_is_next_may_be_refused(patch: pytest.MonkeyPatch) -> None:
    def admit(self: Admission, room: Room, waiting: int, timeout: float, now: float) -> None:
        if admission.expected_wait(room, now) > admission.SHARE * timeout:
            raise TooManyWaiters("even who is next")

    patch.setattr(Admission, "admit", admit)


def the_open_gap_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        admission,
        "expected_wait",
        lambda room, now: (len(room.queue) + 1) * (room.pace.interval if room.pace else 0.0),
    )


def the_open_gap_counts_for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        admission,
        "expected_wait",
        lambda room, now: (
            (len(room.queue) + 1) * max(room.pace.interval if room.pace else 0.0, now - room.since)
        ),
    )


def only_holds_of_ones_own_count(patch: pytest.MonkeyPatch) -> None:
    honest = Turns.take

    def take(self: Turns, room: Room, *rest: Any) -> None:
        room.since = self._engine.now()
        honest(self, room, *rest)

    patch.setattr(Turns, "take", take)
    patch.setattr(
        admission,
        "expected_wait",
        lambda room, now: (len(room.queue) + 1) * (room.pace.interval if room.pace else 0.0),
    )


def quiet_time_counts(patch: pytest.MonkeyPatch) -> None:
    last: dict[str, float] = {}
    granted, honest = Admission.granted, Room.__init__

    def note(self: Admission, room: Room, now: float, waited: bool) -> None:
        granted(self, room, now, waited)
        if waited:
            last[room.key] = now

    def build(self: Room, key: str, name: str, since: float = 0.0, pace: Pace | None = None) -> None:
        honest(self, key, name, last.get(key, since), pace)

    patch.setattr(Admission, "granted", note)
    patch.setattr(Room, "__init__", build)


def time_outs_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "timed_out", lambda self, room, now: None)


def trying_once_counts(patch: pytest.MonkeyPatch) -> None:
    honest = Rooms.leave

    def leave(self: Rooms, waiter: Waiter) -> None:
        honest(self, waiter)
        if waiter.grant is None:
            waiter.room.pace = waiter.room.pace or Pace()
            waiter.room.pace.note(1.0)
            waiter.room.pace.noted = waiter.room.since

    patch.setattr(Rooms, "leave", leave)


def dropped_rooms_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "remember", lambda self, room: None)


def nothing_fades(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "HALF_LIFE", math.inf)


def everything_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "REMEMBERED", math.inf)


def patience_without_limit_ends(patch: pytest.MonkeyPatch) -> None:
    honest = Admission.admit
    patch.setattr(
        Admission,
        "admit",
        lambda self, room, waiting, timeout, now: honest(self, room, waiting, min(timeout, 60.0), now),
    )


def the_first_interval_is_believed(patch: pytest.MonkeyPatch) -> None:
    honest = Pace.__init__

    def build(self: Pace) -> None:
        honest(self)
        self.interval = 1.0

    patch.setattr(Pace, "__init__", build)
    patch.setattr(admission, "_UNKNOWN", Pace())


def what_was_slow_stays_slow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "LOOKS_BACK", 1000)


#: A bug in admission, and the test that kills it.
PLANTED: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    nobody_is_refused: test_a_line_that_is_too_long_is_refused_and_a_shorter_one_is_not,
    who_is_next_may_be_refused: test_who_is_next_comes_in_however_long_it_takes,
    the_open_gap_is_ignored: test_the_time_since_the_last_grant_counts,
    the_open_gap_counts_for_everybody: test_one_slow_holder_does_not_make_the_whole_line_slow,
    only_holds_of_ones_own_count: test_the_turns_of_other_processes_count,
    quiet_time_counts: test_a_quiet_hour_is_no_wait,
    time_outs_do_not_count: test_waits_that_timed_out_count,
    trying_once_counts: test_who_tries_once_counts_for_nothing,
    dropped_rooms_are_forgotten: test_a_line_that_was_slow_is_remembered_when_all_have_gone,
    nothing_fades: test_what_is_remembered_fades,
    everything_is_remembered: test_only_so_many_names_are_remembered_and_only_those_that_were_waited_for,
    patience_without_limit_ends: test_patience_without_limit_is_never_refused,
    the_first_interval_is_believed: test_the_first_burst_comes_in,
    what_was_slow_stays_slow: test_a_line_that_becomes_fast_is_long_again_soon,
}


@pytest.mark.parametrize(("bug", "test"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, TooManyWaiters, pytest.fail.Exception)):
        test()


@pytest.mark.parametrize("bug", [nobody_is_refused, only_holds_of_ones_own_count])
def test_without_the_turns_of_others_many_wait_in_vain(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    rush = Rush(processes=2)
    assert rush.in_vain > 0.3 * rush.admitted
