"""Beginning on the push: what may begin, what awaits the confirmation, and what is lost without it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from distlock.backends.base import LockRequest
from distlock.errors import BackendUnavailable, LockLost
from tests.engine.scene import Caller, Scene, is_call
from tests.engine.simulation import Process

#: The acknowledgement window of the backend in memory, seconds.
WINDOW = 0.5
#: A process calls a lease over after this share of it, less so many seconds.
LEASE_SHARE, LEASE_LESS = 0.98, 0.002

TTL = 9.0
KEY = ":a"


class HandOff(Scene):
    """Process 0 holds the lock, and process 1 waits for it. Time passes between the poll and the release."""

    def __init__(self, took: float = 0.01, on_push: bool = True, **settings: float) -> None:
        super().__init__(processes=0)
        self.asked = list[str]()
        for _ in range(2):
            self.open(**settings)
        self.holder = self.come()
        self.waiter = self.come(process=1, on_push=on_push, timeout=60.0)
        self.now += took
        self.asked.clear()

    def open(self, **settings: float) -> None:
        process = Process(self, len(self.all), **{**self.settings, "ttl": TTL, **settings})
        self.all.append(process)
        for word in ("request", "acknowledge", "renew", "cancel", "release"):
            honest = getattr(process.backend, word)
            setattr(process.backend, word, self._noted(len(self.all) - 1, word, honest))

    def _noted(self, process: int, word: str, honest: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any) -> Any:
            if process == 1:
                self.asked.append(word)
            return honest(*arguments)

        return asked

    def begin(self) -> Any:
        """Hand off, and let the waiter go on."""
        self.holder.leave()
        self.waiter.go()
        return self.grant

    @property
    def grant(self) -> Any:
        assert self.waiter.grant is not None
        return self.waiter.grant

    def held_by(self) -> str | None:
        holds = self.service.records[KEY].holds if KEY in self.service.records else []
        return holds[0].entry.request.token if holds else None

    def pass_on(self) -> None:
        """Let the next one in, as the service does when a window is over."""
        self.service.records[KEY].holds[0].ends = self.now
        self.service.locked(KEY)


def test_a_body_begins_on_the_push_without_a_question() -> None:
    scene = HandOff()
    grant = scene.begin()
    assert scene.asked == []
    assert scene.held_by() == grant._hold.request.token
    assert grant.fence.number == scene.service.records[KEY].holds[0].number


def test_an_empty_body_asks_nothing_but_the_release() -> None:
    scene = HandOff()
    scene.begin()
    scene.waiter.leave()
    assert scene.asked == ["release"]
    assert scene.held_by() is None


def test_what_was_not_told_that_it_may_asks_before_it_begins() -> None:
    scene = HandOff(on_push=False)
    scene.waiter.parker.may_stall = False
    assert scene.begin()._hold.acknowledged
    assert scene.asked == ["request"]


def test_a_task_asks_before_it_begins() -> None:
    """To await the confirmation later would stop its event loop."""
    scene = HandOff()
    scene.waiter.parker.may_stall = True
    assert scene.begin()._hold.acknowledged
    assert scene.asked == ["request"]


def test_a_caller_that_may_be_taken_along_asks_before_it_begins() -> None:
    """A batch is worth a round trip: its followers need a confirmed lock."""
    scene = HandOff(on_push=False)
    waiter = scene.all[1].engine.queues.by_key[KEY].waiters[0]
    waiter.parker.may_stall = False
    waiter.options = replace(waiter.options, on_push=True, seat=SimpleNamespace(key="sell", batch=None))
    assert scene.begin()._hold.acknowledged


@pytest.mark.parametrize(("took", "begins"), [(0.49 * WINDOW, True), (0.51 * WINDOW, False)])
def test_half_of_the_window_is_left_when_a_body_begins_counted_from_the_poll(
    took: float, begins: bool
) -> None:
    scene = HandOff(took)
    assert scene.begin()._hold.acknowledged is not begins


def test_a_waiter_that_hears_of_its_push_late_asks() -> None:
    scene = HandOff()
    scene.holder.leave()
    scene.now += WINDOW / 2
    scene.waiter.go()
    assert scene.grant._hold.acknowledged
    assert scene.asked == ["request"]


def test_a_push_for_another_ask_is_only_a_hint() -> None:
    scene = HandOff()
    sink = scene.all[1].engine.sink
    sink.handed_off(KEY, "of another ask", 1, scene.now)
    scene.waiter.go()
    assert scene.asked == ["request"]
    assert not scene.waiter.done


def test_what_a_push_said_before_a_poll_that_queues_is_forgotten() -> None:
    """It named a grant that has passed on, and the same ask stands in the queue again."""
    scene = HandOff()
    queue = scene.all[1].engine.queues.by_key[KEY]
    assert queue.request is not None
    token, sent = queue.request.token, scene.now
    scene.now += 0.1
    leader = queue.waiters[0]
    leader.leads = False
    scene.all[1].engine.sink.handed_off(KEY, token, 1, sent)
    leader.leads = True
    queue.handed_off, pushed = None, queue.handed_off
    steps = scene.all[1].engine._request(queue, leader, 100.0)
    call = next(steps)
    answer = call.function(*call.arguments)  # type: ignore[union-attr]
    queue.handed_off = pushed
    with pytest.raises(StopIteration):
        steps.send(answer)
    assert queue.handed_off is None


def test_remaining_is_what_is_left_of_the_window_until_it_is_confirmed() -> None:
    scene = HandOff(took=0.1)
    grant = scene.begin()
    assert grant.remaining() == pytest.approx(LEASE_SHARE * WINDOW - LEASE_LESS - 0.1)
    grant.check()
    assert scene.asked == ["acknowledge"]
    assert grant.remaining() == pytest.approx(LEASE_SHARE * TTL - LEASE_LESS)
    grant.check()
    assert scene.asked == ["acknowledge"]


def test_a_check_raises_where_the_lock_has_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.pass_on()
    with caplog.at_level(logging.ERROR), pytest.raises(LockLost, match="gave it on"):
        grant.check()
    assert grant.lost
    assert "was lost" in caplog.text


def test_a_check_never_takes_the_lock_again() -> None:
    """A request would be granted it, after somebody else was inside."""
    scene = HandOff()
    grant = scene.begin()
    third = scene.come(process=0, timeout=0.0)
    assert third.grant is None
    scene.pass_on()
    third = scene.come(process=0, timeout=0.0)
    assert third.grant is not None
    third.leave()
    with pytest.raises(LockLost):
        grant.check()
    assert scene.held_by() is None


def test_a_check_that_is_not_answered_raises_and_a_later_one_may_succeed() -> None:
    scene = HandOff()
    grant, backend = scene.begin(), scene.all[1].backend
    honest = backend.acknowledge

    def away(handed: Sequence[tuple[LockRequest, int]], deadline: float) -> list[bool]:
        raise BackendUnavailable("It is away.")

    backend.acknowledge = away  # type: ignore[assignment, method-assign]
    with pytest.raises(LockLost, match=r"could not be confirmed: It is away\. Undo"):
        grant.check()
    backend.acknowledge = honest  # type: ignore[method-assign]
    grant.check()


def test_a_stall_between_the_push_and_its_confirmation_is_a_loss_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.now += WINDOW
    with pytest.raises(LockLost, match="not acknowledged in time"):
        grant.check()
    with caplog.at_level(logging.ERROR):
        scene.keep(1)
    assert "its hand-off was not acknowledged in time" in caplog.text
    assert scene.held_by() is None


def test_the_keeper_confirms_the_lock_of_a_body_that_lasts() -> None:
    scene = HandOff(took=WINDOW / 4)
    grant = scene.begin()
    scene.now += WINDOW / 8
    scene.keep(1)
    assert scene.asked == ["acknowledge"]
    assert grant.remaining() == pytest.approx(LEASE_SHARE * TTL - LEASE_LESS)
    scene.now += TTL / 3
    scene.keep(1)
    assert scene.asked == ["acknowledge", "renew"]


def test_the_keeper_tells_what_it_can_not_confirm(caplog: pytest.LogCaptureFixture) -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.pass_on()
    scene.now += WINDOW / 8
    with caplog.at_level(logging.ERROR):
        scene.keep(1)
    assert grant.lost
    assert "was lost" in caplog.text
    # A renewal compares the token only.
    assert "renew" not in scene.asked


def test_a_broken_lock_is_lost_before_it_is_confirmed() -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.service.records[KEY].holds.clear()
    scene.all[1].engine.sink.missed_notifications()
    scene.keep(1)
    assert grant.lost


def test_the_keeper_is_not_woken_for_each_hand_off() -> None:
    scene = HandOff()
    thread, woken = scene.all[1].engine.maintenance, list[float]()
    thread.thread = threading.current_thread()
    thread.parker.heard = lambda: woken.append(scene.now)  # type: ignore[attr-defined]
    for _ in range(20):
        scene.begin()
        scene.waiter.leave()
        scene.keep(1)
        scene.holder = scene.come()
        scene.waiter = scene.come(process=1, on_push=True)
        scene.now += 0.001
    assert len(woken) <= 2


def behind(scene: HandOff) -> Caller:
    """Another caller of the process that waits."""
    caller = scene.come(process=1, on_push=True)
    scene.asked.clear()
    return caller


def test_the_next_grant_of_the_process_awaits_the_confirmation() -> None:
    scene = HandOff()
    second = behind(scene)
    scene.begin()
    scene.waiter.leave()
    assert scene.asked == ["acknowledge"]
    second.go()
    assert second.grant is not None
    assert second.grant.remaining() > WINDOW


def test_with_leases_that_are_shorter_than_the_window_it_awaits_it_too() -> None:
    scene = HandOff(ttl=0.1)
    behind(scene)
    scene.begin()
    scene.waiter.leave()
    assert scene.asked[0] == "acknowledge"


def test_what_is_not_confirmed_does_not_pass_to_the_next_of_the_process() -> None:
    scene = HandOff()
    second = behind(scene)
    grant = scene.begin()
    scene.pass_on()
    scene.waiter.leave()
    assert grant.lost
    assert second.grant is None
    second.go()
    assert second.grant is not None
    assert second.grant.fence > grant.fence


@pytest.mark.parametrize("ttl", [TTL, 0.1])
def test_where_the_service_is_away_the_hold_goes_back_and_not_on(ttl: float) -> None:
    scene = HandOff(ttl=ttl)
    second = behind(scene)
    scene.begin()

    def away(handed: Sequence[tuple[LockRequest, int]], deadline: float) -> list[bool]:
        raise BackendUnavailable("It is away.")

    scene.all[1].backend.acknowledge = away  # type: ignore[assignment, method-assign]
    scene.waiter.leave()
    assert "release" in scene.asked
    assert second.grant is None


def test_a_fence_is_lifted_only_under_a_confirmed_lock() -> None:
    """The script that lifts compares the token only."""
    scene = HandOff()
    grant = scene.begin()
    assert grant.raise_fence("a", grant.fence.number + 1000)
    assert scene.asked == ["acknowledge"]
    scene = HandOff()
    grant = scene.begin()
    scene.service.records[KEY].holds[0].number += 1
    assert not grant.raise_fence("a", grant.fence.number + 1000)
    assert grant.lost


@pytest.mark.parametrize("by", ["the keeper", "a check"])
def test_a_confirmation_that_arrives_behind_a_lift_is_no_loss(by: str) -> None:
    """It asks for the number that the raise has just exchanged."""
    scene = HandOff()
    grant = scene.begin()
    scene.now += WINDOW / 8
    engine = scene.all[1].engine
    steps: Any = (
        engine.maintenance.tick() if by == "the keeper" else engine.hold_calls.acknowledge(grant._hold)
    )
    late = next(steps)
    assert is_call(late)
    assert grant.raise_fence("a", grant.fence.number + 1000)
    answer = late.function(*late.arguments)
    assert answer == [False]
    with suppress(StopIteration):
        steps.send(answer)
    assert not grant.lost
    grant.check()


def test_a_hung_holder_is_not_confirmed_for_ever() -> None:
    scene = HandOff(max_hold=5.0)
    grant = scene.begin()
    for _ in range(200):
        scene.now += 0.1
        scene.keep(1)
    assert grant.lost


def test_a_closed_client_gives_back_what_was_handed_to_it() -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.all[1].engine.close()
    assert grant.lost
    assert scene.held_by() is None


def test_a_forked_child_has_nothing_of_it() -> None:
    scene = HandOff()
    grant = scene.begin()
    scene.all[1].engine.after_fork()
    assert grant.lost
    with pytest.raises(LockLost, match="forked"):
        grant.check()
