"""A waiter whose event loop stands still keeps nobody waiting for long after its own time-out."""

from __future__ import annotations

import math

import pytest

from distlock.errors import BackendUnavailable
from tests.engine.scene import TIMEOUT, Scene

#: How long after its time-out a waiter may still see to itself, seconds.
GRACE = 2.0


def go_by(scene: Scene, seconds: float) -> None:
    scene.now += seconds
    scene.keep()


def is_clean(scene: Scene) -> bool:
    engine = scene.all[0].engine
    scene.keep()
    return not (engine.queues.by_key or engine.queues.waiting or engine.renewer.holds or engine.cancellations)


def test_who_leads_and_stands_still_is_passed_over() -> None:
    scene = Scene(processes=2)
    holder = scene.come(process=1)
    stalled = scene.come()
    behind = scene.come(timeout=60.0)
    holder.leave()
    go_by(scene, TIMEOUT + GRACE - 0.1)
    behind.go()
    assert not behind.done, "it may still be on its way"
    go_by(scene, 0.2)
    assert behind.parker.open, "somebody else leads"
    behind.go()
    assert behind.grant is not None
    stalled.go()
    assert stalled.done
    assert stalled.grant is None
    assert not behind.grant.lost
    behind.leave()
    assert is_clean(scene)


def test_so_is_who_was_granted_the_lock_and_does_not_come_for_it() -> None:
    scene = Scene()
    holder, stalled, behind = scene.come(), scene.come(), scene.come(timeout=60.0)
    holder.leave()
    assert stalled.parker.open
    go_by(scene, TIMEOUT + GRACE + 0.1)
    assert behind.parker.open
    behind.go()
    assert behind.grant is not None
    stalled.go()
    assert stalled.done
    assert stalled.grant is None
    assert not behind.grant.lost
    behind.leave()
    assert is_clean(scene)


def test_what_nobody_else_waits_for_here_goes_back_to_the_service() -> None:
    scene = Scene(processes=2)
    holder, stalled = scene.come(), scene.come()
    elsewhere = scene.come(timeout=math.inf, process=1)
    holder.leave()
    go_by(scene, TIMEOUT + GRACE + 0.1)
    elsewhere.go()
    assert elsewhere.grant is not None
    stalled.go()
    assert stalled.grant is None
    elsewhere.leave()
    assert is_clean(scene)


def test_who_stands_still_in_the_middle_of_the_line_is_not_counted_any_more() -> None:
    scene = Scene()
    holder = scene.come(timeout=60.0)
    scene.come()
    last = scene.come(timeout=60.0)
    go_by(scene, TIMEOUT + GRACE + 0.1)
    assert scene.all[0].engine.queues.waiting == 1
    holder.leave()
    last.go()
    assert last.grant is not None
    last.leave()
    assert is_clean(scene)


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_call_to_the_service_that_is_under_way_is_waited_for(carried_out: bool) -> None:
    scene = Scene(processes=2)
    stalled = scene.ask()
    behind = scene.come(timeout=60.0)
    if carried_out:
        answer = stalled.carry_out()
    go_by(scene, TIMEOUT + GRACE + 0.1)
    assert behind.parker.open == carried_out, "what it has asked for may still be granted"
    if not carried_out:
        answer = stalled.carry_out()
        go_by(scene, GRACE + 0.1)
    behind.go()
    assert behind.grant is not None
    stalled.hear(answer)
    assert stalled.done
    assert stalled.grant is None
    assert not behind.grant.lost
    scene.keep()
    assert scene.come(timeout=0.0, process=1).grant is None, "what it has asked for is in use"
    behind.leave()
    assert is_clean(scene)


def test_what_is_granted_long_after_goes_back() -> None:
    scene = Scene(processes=2)
    stalled = scene.ask()
    stalled.overrun()
    go_by(scene, TIMEOUT + GRACE + 0.1)
    stalled.hear(stalled.carry_out())
    assert stalled.done
    assert stalled.grant is None
    assert is_clean(scene)
    assert scene.come(timeout=0.0, process=1).grant is not None


def test_who_would_not_wait_leaves_nobody_behind_without_a_place() -> None:
    """It asked whether the lock is free. The next caller wants to wait."""
    scene = Scene(processes=2)
    holder = scene.come(process=1)
    stalled = scene.ask(timeout=0.0)
    behind = scene.come(timeout=math.inf)
    answer = stalled.carry_out()
    go_by(scene, GRACE + 0.1)
    behind.go()
    assert not behind.done
    holder.leave()
    behind.go()
    assert behind.grant is not None
    stalled.hear(answer)
    assert stalled.done
    assert stalled.grant is None
    behind.leave()
    assert is_clean(scene)


def test_an_outage_after_one_who_would_not_wait_is_an_outage() -> None:
    """Nobody has told the next caller to wait. What the service said is gone with the one before."""
    scene = Scene(processes=2)
    holder = scene.come(process=1)
    stalled = scene.ask(timeout=0.0)
    behind = scene.come(timeout=60.0)
    stalled.carry_out()
    go_by(scene, GRACE + 0.1)
    with pytest.raises(BackendUnavailable):
        behind.go_and_fail(BackendUnavailable("away"), after=61.0)
    holder.leave()


def test_without_a_limit_to_its_patience_it_keeps_its_place() -> None:
    scene = Scene()
    holder, patient = scene.come(), scene.come(timeout=math.inf)
    behind = scene.come(timeout=math.inf)
    holder.leave()
    go_by(scene, 900.0)
    assert not behind.parker.open
    patient.go()
    assert patient.grant is not None
