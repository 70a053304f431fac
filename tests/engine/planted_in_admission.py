"""Admission with one bug at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from distlock.engine import admission
from distlock.engine.admission import Admission, Pace
from distlock.engine.hold import Waiter
from distlock.engine.wait_queue import WaitQueue
from distlock.errors import TooManyWaiters


def _everybody_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    """The bug is in what one finds then."""
    patch.setattr(Pace, "expected_at_most", lambda self, grants, gap: math.inf)


def nobody_is_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "expected_wait", lambda room, now: 0.0)


def who_is_next_may_be_refused(patch: pytest.MonkeyPatch) -> None:
    def admit(self: Admission, room: WaitQueue, waiting: int, timeout: float, now: float) -> None:
        if admission.expected_wait(room, now) > admission.TIMEOUT_SHARE * timeout:
            raise TooManyWaiters("even who is next")

    patch.setattr(Admission, "admit", admit)


def the_open_gap_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pace, "expected", lambda self, grants, gap: self.past(grants))


def the_open_gap_counts_for_everybody(patch: pytest.MonkeyPatch) -> None:
    _everybody_is_looked_at(patch)
    patch.setattr(Pace, "expected", lambda self, grants, gap: max(self.past(grants), grants * gap))


def the_longest_grant_counts_for_everybody(patch: pytest.MonkeyPatch) -> None:
    _everybody_is_looked_at(patch)
    patch.setattr(admission, "FEWEST_GRANTS", 1)
    patch.setattr(
        Pace,
        "expected",
        lambda self, grants, gap: grants * max([gap, *self._gaps][-grants:]),
    )


def only_holds_of_ones_own_count(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.grant_leader

    def grant_leader(self: WaitQueue, hold: Any, now: float) -> None:
        self.since = now
        honest(self, hold, now)

    patch.setattr(WaitQueue, "grant_leader", grant_leader)
    the_open_gap_is_ignored(patch)


def quiet_time_counts(patch: pytest.MonkeyPatch) -> None:
    last: dict[str, float] = {}
    granted, honest = Admission.granted, WaitQueue.__init__

    def note(self: Admission, room: WaitQueue, now: float, waited: bool) -> None:
        granted(self, room, now, waited)
        if waited:
            last[room.key] = now

    def build(self: WaitQueue, every: Any, key: str, name: str, since: float, *more: Any) -> None:
        honest(self, every, key, name, last.get(key, since), *more)

    patch.setattr(Admission, "granted", note)
    patch.setattr(WaitQueue, "__init__", build)


def time_outs_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "timed_out", lambda self, room, now: None)


def trying_once_counts(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.leave

    def leave(self: WaitQueue, waiter: Waiter) -> None:
        honest(self, waiter)
        if waiter.grant is None:
            self.pace = self.pace or Pace()
            self.pace.granted(1.0, self.since, whole=True)

    patch.setattr(WaitQueue, "leave", leave)


def dropped_rooms_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "remember", lambda self, key, pace: None)


def nothing_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "FORGOTTEN", math.inf)


def everything_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "REMEMBERED", math.inf)


def patience_without_limit_ends(patch: pytest.MonkeyPatch) -> None:
    honest = Admission.admit
    patch.setattr(
        Admission,
        "admit",
        lambda self, room, waiting, timeout, now: honest(self, room, waiting, min(timeout, 60.0), now),
    )


def what_is_unknown_is_slow(patch: pytest.MonkeyPatch) -> None:
    _everybody_is_looked_at(patch)
    patch.setattr(Pace, "past", lambda self, grants: grants * 1.0)


def what_was_slow_stays_slow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "FEWEST_GRANTS", 80)


def a_few_grants_tell_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "FEWEST_GRANTS", 1)


def a_longer_line_is_for_nothing(patch: pytest.MonkeyPatch) -> None:
    honest = Pace.past
    patch.setattr(Pace, "past", lambda self, grants: honest(self, min(grants, admission.MOST_GAPS)))
