"""What admission does to 60 callers a second: hardly anybody is refused for nothing, or waits for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.scene import TIMEOUT, Crowd

#: When something happens, seconds after the first came.
THEN = 8.0


def once(seconds: float, view: float) -> Callable[[float], float]:
    """A view that holds the lock for *view* seconds, and a single time for so many *seconds*."""
    happened = False

    def hold(now: float) -> float:
        nonlocal happened
        if happened or now < THEN:
            return view
        happened = True
        return seconds

    return hold


@pytest.mark.parametrize("processes", [1, 2, 8])
@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.0])
def test_one_slow_grant_refuses_nobody(seconds: float, processes: int) -> None:
    """Without admission all of them are served in time."""
    crowd = Crowd(1, processes=processes, seconds=20.0, hold=once(seconds, 0.005))
    assert (len(crowd.refused), len(crowd.in_vain)) == (0, 0)


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_one_slow_grant_of_a_slower_view_refuses_nobody(processes: int) -> None:
    crowd = Crowd(1, processes=processes, rate=14.0, seconds=20.0, hold=once(1.0, 0.05))
    assert (len(crowd.refused), len(crowd.in_vain)) == (0, 0)


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("view", [0.005, 0.05])
def test_a_stall_that_is_over_refuses_nobody(view: float, processes: int) -> None:
    """While it lasts it does: behind a holder that hangs nobody would be served in time."""
    stall = 13.0
    crowd = Crowd(1, processes=processes, rate=14.0, seconds=40.0, hold=once(stall, view))
    over = THEN + stall
    assert sum(THEN < came < over for came in crowd.refused) > 14.0 * (stall - 2 * TIMEOUT)
    assert [came for came in crowd.refused if came > over + 0.5] == []


@pytest.mark.parametrize("processes", [1, 2, 8])
@pytest.mark.parametrize(("view", "rate"), [(0.005, 60.0), (0.05, 14.0)])
def test_a_lock_service_that_is_away_for_two_seconds_refuses_nobody(
    view: float, rate: float, processes: int
) -> None:
    crowd = Crowd(
        1,
        processes=processes,
        rate=rate,
        seconds=20.0,
        hold=lambda now: view,
        away=(THEN, THEN + 2.0),
    )
    assert (len(crowd.refused), len(crowd.in_vain)) == (0, 0)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("before", [0.005, 0.05, 0.3, 1.0])
def test_a_view_that_becomes_slow_is_known_as_slow_after_one_time_out(before: float, processes: int) -> None:
    """It holds the lock for a second from some moment on, or ever since."""
    crowd = Crowd(1, processes=processes, seconds=30.0, hold=lambda now: before if now < THEN else 1.0)
    since = (THEN if before < 1.0 else 0.0) + TIMEOUT
    served, in_vain = (sum(came > since for came in some) for some in (crowd.served, crowd.in_vain))
    assert in_vain <= 0.05 * (served + in_vain)
    # The lock is never idle for want of somebody to take it.
    assert sum(when > THEN for when in crowd.granted) >= 30.0 - THEN - 1.0


@pytest.mark.parametrize("view", [1.0, 1.1, 1.2, 1.5])
def test_a_process_whose_first_grant_comes_late_takes_it_for_no_stall(view: float) -> None:
    """Its turn comes when most of its first callers have given up: those that follow are no second rush."""
    crowd = Crowd(1, processes=2, seconds=30.0, hold=lambda now: view)
    served, in_vain = (sum(came > TIMEOUT for came in some) for some in (crowd.served, crowd.in_vain))
    assert in_vain <= 0.05 * (served + in_vain)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_view_of_300_ms_serves_all_that_it_can(processes: int) -> None:
    crowd = Crowd(1, processes=processes, seconds=30.0, hold=lambda now: 0.3)
    late = sum(came > TIMEOUT for came in crowd.in_vain)
    assert late <= 0.05 * len(crowd.served)
    assert len(crowd.served) > 0.95 * 30.0 / 0.3
