"""The engine with one bug at a time. The kit must find every one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from distlock import rlock
from distlock.engine import hold, loss, readers, revocation
from distlock.engine.acquiring import Acquiring
from distlock.engine.admission import Admission
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.leading import Leading
from distlock.engine.readers import Readers
from distlock.engine.revocation import Revocation
from distlock.engine.room import Room, Rooms
from distlock.engine.turns import Turns
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.multi_grant import MultiGrant

Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*arguments: Any, **more: Any) -> None:
    return None


def nothing_is_retired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeper, "retire", _nothing)


def nothing_is_renewed(patch: pytest.MonkeyPatch) -> None:
    def renew(self: Keeper) -> Any:
        return
        yield

    patch.setattr(Keeper, "_renew", renew)


def hung_holders_are_renewed_for_ever(patch: pytest.MonkeyPatch) -> None:
    honest = Turns._grant

    def grant(self: Turns, hold: Any, waiter: Any) -> None:
        waiter.terms = replace(waiter.terms, max_hold=1e9)
        honest(self, hold, waiter)

    patch.setattr(Turns, "_grant", grant)


def who_gives_up_does_not_cancel(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Leading, waiter: Any, until: float) -> Any:
        with self._section.mutex:
            waiter.room.ask = None
            self._rooms.leave(waiter)
            self._rooms.settle(waiter.room)
        return
        yield

    patch.setattr(Leading, "leave", leave)


def the_interrupted_leave_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CriticalSection, "undo", _nothing)


def rooms_stay(patch: pytest.MonkeyPatch) -> None:
    honest = Rooms.settle

    def settle(self: Rooms, room: Any) -> None:
        honest(self, room)
        self.by_key.setdefault(room.key, room)

    patch.setattr(Rooms, "settle", settle)


def the_last_waiter_is_next(patch: pytest.MonkeyPatch) -> None:
    honest = Turns.pass_on

    def pass_on(self: Turns, hold: Hold) -> bool:
        hold.room.queue.reverse()
        return honest(self, hold)

    patch.setattr(Turns, "pass_on", pass_on)


def turns_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hold, "may_pass", lambda self, now: True)


def passes_share_a_fence(patch: pytest.MonkeyPatch) -> None:
    honest = Turns._grant

    def grant(self: Turns, hold: Hold, waiter: Any) -> None:
        honest(self, hold, waiter)
        hold.used = 0

    patch.setattr(Turns, "_grant", grant)


def waits_have_no_end(patch: pytest.MonkeyPatch) -> None:
    honest = Acquiring.acquire

    def acquire(self: Acquiring, key: str, name: str, gate: Any, timeout: float, ttl: float) -> Any:
        return honest(self, key, name, gate, timeout + 3.0 if timeout else 0.0, ttl)

    patch.setattr(Acquiring, "acquire", acquire)


def nobody_is_turned_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "admit", _nothing)


def a_loss_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss.Losses, "tell_aside", _nothing)


def joins_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Readers, "_open", lambda self, room, terms, now: room.shared[-1] if room.shared else None)


def a_read_waits_behind_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(readers, "_own", _nothing)


def an_upgrade_waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "reads", lambda self, owner: False)


def a_hung_reader_takes_the_others_along(patch: pytest.MonkeyPatch) -> None:
    honest = Readers.end_hung

    def end_hung(self: Readers, hold: Hold, now: float) -> Any:
        for grant in hold.readers:
            grant._ends = now
        return honest(self, hold, now)

    patch.setattr(Readers, "end_hung", end_hung)


def a_writer_gives_up_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "ends_share", lambda self, grant: not self.pass_on(grant._hold))


def every_permit_is_one(patch: pytest.MonkeyPatch) -> None:
    honest = Leading._ask_for_share
    patch.setattr(
        Leading,
        "_ask_for_share",
        lambda self, room, terms, patient: honest(self, room, replace(terms, permits=1), patient),
    )


def a_timed_out_with_enters(patch: pytest.MonkeyPatch) -> None:
    """As redis-py did until 3.0."""
    honest = Lock._opened
    patch.setattr(
        Lock, "_opened", lambda self, block, grant, frame: grant and honest(self, block, grant, frame)
    )


def a_context_owns_the_reentrant_lock(patch: pytest.MonkeyPatch) -> None:
    """A contextvar is copied by gather: all its children are the same owner."""
    owner: ContextVar[object] = ContextVar("owner")

    def current() -> object:
        try:
            return owner.get()
        except LookupError:
            owner.set(object())
            return owner.get()

    current()
    patch.setattr(rlock, "current_owner", current)


def carts_lock_in_their_own_order(patch: pytest.MonkeyPatch) -> None:
    honest = Locks._checked

    def checked(self: Locks, word: str, names: Sequence[str], *rest: Any) -> Any:
        _ordered, *more = honest(self, word, names, *rest)  # type: ignore[arg-type]
        return tuple(dict.fromkeys(names)), *more

    patch.setattr(Locks, "_checked", checked)


def some_of_the_names_are_kept(patch: pytest.MonkeyPatch) -> None:
    def release(self: MultiGrant, until: float = math.inf) -> Any:
        yield from self._grants[-1]._release()

    patch.setattr(MultiGrant, "_release", release)


def what_is_wanted_back_is_passed_on(patch: pytest.MonkeyPatch) -> None:
    honest = Hold.may_pass

    def may_pass(self: Hold, now: float) -> bool:
        wanted, self.release_requested = self.release_requested, False
        passes = honest(self, now)
        self.release_requested = wanted
        return passes

    patch.setattr(hold, "TURN", 60.0)
    patch.setattr(Hold, "may_pass", may_pass)


def callbacks_run_where_a_request_is_heard(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Revocation, told: list[Callable[[Any], object]], grant: Any) -> None:
        revocation._call_all(told, grant)

    patch.setattr(Revocation, "_begin", begin)
