"""Bugs to plant in the engine, or in the model of a lock service. Each is a mistake that people make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from distlock.backends.base import PERMIT, READ
from tests.histories.process import (
    TTL,
    Cancellations,
    CriticalSection,
    Family,
    Hold,
    NameGrant,
    Scene,
    WaitQueue,
)
from tests.histories.services import REDIS, KeyRecord, ModeledService


def _nothing(*arguments: Any, **more: Any) -> None:
    return None


def a_reader_enters_beside_a_writer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "_hold_of_owner", lambda self, owner: self.hold)


def a_permit_too_many_is_given(patch: pytest.MonkeyPatch) -> None:
    honest = KeyRecord.has_room

    def has_room(self: Any, request: Any) -> bool:
        more = replace(request, limit=request.limit + 1)
        return bool(honest(self, more if request.mode == PERMIT else request))

    patch.setattr(KeyRecord, "has_room", has_room)


def a_lost_lease_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NameGrant, "lost", False)


def a_release_does_not_look_whose_hold_it_is(patch: pytest.MonkeyPatch) -> None:
    def release(self: Any, request: Any) -> bool:
        with self._record(request.key) as record:
            del record.holds[:1]
            self._hand_off(record)
            return True

    patch.setattr(ModeledService, "release", release)


def a_waiter_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.elect

    def elect(self: WaitQueue) -> None:
        if not self.busy and self.waiters:
            self.waiters[0].leads = True
        else:
            honest(self)

    patch.setattr(WaitQueue, "elect", elect)


def a_fence_falls_back(patch: pytest.MonkeyPatch) -> None:
    honest = ModeledService._numbered

    def numbered(self: Any, mode: Any, span: int, above: int = 0) -> int:
        number: int = honest(self, mode, span, above)
        self.last_number = 0
        return number

    patch.setattr(ModeledService, "_numbered", numbered)


def two_hand_offs_have_one_fence(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue._grant

    def grant(self: WaitQueue, hold: Hold, *rest: Any) -> None:
        honest(self, hold, *rest)
        hold.used = 0

    patch.setattr(WaitQueue, "_grant", grant)


def an_interrupted_caller_leaves_its_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CriticalSection, "undo", _nothing)


def a_downgrade_lets_a_writer_in(patch: pytest.MonkeyPatch) -> None:
    def downgrade(self: Any, request: Any) -> bool:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            if hold is None:
                return False
            # It releases the hold, and then asks for one of a reader.
            record.holds.remove(hold)
            self._hand_off(record)
            hold.mode = READ
            record.holds.append(hold)
            return True

    patch.setattr(ModeledService, "downgrade", downgrade)


def a_hand_off_outlives_its_deadline(patch: pytest.MonkeyPatch) -> None:
    def mark_handed_off(self: Hold, sent: float, window: float) -> None:
        self.acknowledged = False
        self.lease_ends = sent + TTL

    patch.setattr(Hold, "mark_handed_off", mark_handed_off)


def a_lost_answer_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cancellations, "add", _nothing)


def a_late_request_is_cancelled_once(patch: pytest.MonkeyPatch) -> None:
    honest = Cancellations.add

    def add(self: Cancellations, request: Any) -> None:
        request.unanswered = 0
        honest(self, request)

    patch.setattr(Cancellations, "add", add)


def the_reader_of_a_failed_downgrade_stays(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.release_ended

    def release_ended(self: WaitQueue, hold: Hold, ours: bool | None) -> None:
        hold.downgrade_request = None
        honest(self, hold, ours)

    patch.setattr(WaitQueue, "release_ended", release_ended)


class Plant(NamedTuple):
    """A bug, and where it shows."""

    plant: Callable[[pytest.MonkeyPatch], None]
    scene: Scene
    #: The faults that it needs.
    kinds: tuple[str, ...] = ()
    family: Family = REDIS
    #: Whether a call and its answer are one step.
    whole: bool = False


_ON_PUSH = Scene(("W", "W", "W"), on_push=True)
PLANTS = {
    one.plant.__name__: one
    for one in (
        Plant(a_reader_enters_beside_a_writer, Scene(("RW",))),
        Plant(a_permit_too_many_is_given, Scene(("12",))),
        Plant(a_lost_lease_is_ignored, Scene(("W", "W")), ("stop",)),
        Plant(a_release_does_not_look_whose_hold_it_is, Scene(("WW", "W")), ("stop",), whole=True),
        Plant(a_waiter_is_forgotten, Scene(("WW",))),
        Plant(a_fence_falls_back, Scene(("W", "W"))),
        Plant(two_hand_offs_have_one_fence, Scene(("WW",))),
        Plant(an_interrupted_caller_leaves_its_hold, Scene(("W",)), ("interrupt",)),
        Plant(a_downgrade_lets_a_writer_in, Scene(("D", "W"))),
        Plant(a_hand_off_outlives_its_deadline, _ON_PUSH, ("stop",), whole=True),
        Plant(a_lost_answer_is_not_given_back, Scene(("W",)), ("lost answer",)),
        Plant(a_late_request_is_cancelled_once, Scene(("W",)), ("late request",)),
        Plant(the_reader_of_a_failed_downgrade_stays, Scene(("D",)), ("lost answer",)),
    )
}
