"""The engine with one bug at a time. The kit must find every one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from distlock import Lock, Locks
from distlock.backends.base import PERMIT
from distlock.engine import hold, sans_io
from distlock.engine.admission import Admission
from distlock.engine.critical_section import CriticalSection
from distlock.engine.deferred_work import Cancellations
from distlock.engine.engine import Engine
from distlock.engine.events import Callbacks
from distlock.engine.hold import Hold
from distlock.engine.renewal import Renewer
from distlock.engine.wait_queue import WaitQueue
from distlock.grants.joint import MultiGrant
from distlock.locks import rlock

Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*arguments: Any, **more: Any) -> None:
    return None


def nothing_is_cancelled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cancellations, "add", _nothing)


def nothing_is_renewed(patch: pytest.MonkeyPatch) -> None:
    def tick(self: Renewer, until: Any) -> Any:
        return
        yield

    patch.setattr(Renewer, "tick", tick)


def hung_holders_are_renewed_for_ever(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue._grant

    def grant(self: WaitQueue, hold: Any, waiter: Any, *rest: Any) -> None:
        waiter.options = replace(waiter.options, max_hold=1e9)
        honest(self, hold, waiter, *rest)

    patch.setattr(WaitQueue, "_grant", grant)


def who_gives_up_does_not_cancel(patch: pytest.MonkeyPatch) -> None:
    def withdraw(self: Engine, queue: WaitQueue, waiter: Any, until: float) -> Any:
        with self.section.mutex:
            queue.request = None
            queue.leave(waiter)
            queue.elect()
        return
        yield

    patch.setattr(Engine, "_withdraw", withdraw)


def the_interrupted_leave_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CriticalSection, "undo", _nothing)


def queues_stay(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.elect

    def elect(self: WaitQueue) -> None:
        honest(self)
        self._all.by_key.setdefault(self.key, self)

    patch.setattr(WaitQueue, "elect", elect)


def the_last_waiter_is_next(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue.hand_off

    def hand_off(self: WaitQueue, hold: Hold) -> bool:
        self.waiters.reverse()
        return honest(self, hold)

    patch.setattr(WaitQueue, "hand_off", hand_off)


def turns_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hold, "may_hand_off", lambda self, now: True)


def hand_offs_share_a_fence(patch: pytest.MonkeyPatch) -> None:
    honest = WaitQueue._grant

    def grant(self: WaitQueue, hold: Hold, *rest: Any) -> None:
        honest(self, hold, *rest)
        hold.used = 0

    patch.setattr(WaitQueue, "_grant", grant)


def waits_have_no_end(patch: pytest.MonkeyPatch) -> None:
    honest = Engine.acquire

    def acquire(self: Engine, key: str, name: str, parker: Any, timeout: float, options: Any) -> Any:
        return honest(self, key, name, parker, timeout + 3.0 if timeout else 0.0, options)

    patch.setattr(Engine, "acquire", acquire)


def nobody_is_turned_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "admit", _nothing)


def a_loss_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Callbacks, "lost_off_thread", _nothing)


def joins_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        WaitQueue,
        "_hold_open_to_readers",
        lambda self, options, now: self.shared[-1] if self.shared else None,
    )


def a_read_waits_behind_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "_hold_of_owner", _nothing)


def an_upgrade_waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "is_read_by", lambda self, owner: False)


def a_hung_reader_takes_the_others_along(patch: pytest.MonkeyPatch) -> None:
    honest = Hold.remove_hung_readers

    def remove_hung_readers(self: Hold, now: float) -> Any:
        for grant in self.readers:
            grant._max_hold_ends = now
        return honest(self, now)

    patch.setattr(Hold, "remove_hung_readers", remove_hung_readers)


def a_writer_gives_up_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "_end_shared", lambda self, hold, grant: not self.hand_off(hold))


def every_permit_is_one(patch: pytest.MonkeyPatch) -> None:
    honest = Engine._request

    def request(self: Engine, queue: WaitQueue, waiter: Any, until: float) -> Any:
        if waiter.options.mode == PERMIT:
            waiter.options = replace(waiter.options, permits=1)
        return honest(self, queue, waiter, until)

    patch.setattr(Engine, "_request", request)


def a_timed_out_with_enters(patch: pytest.MonkeyPatch) -> None:
    """As redis-py did until 3.0."""
    honest = Lock._begin_block
    patch.setattr(
        Lock, "_begin_block", lambda self, block, grant, frame: grant and honest(self, block, grant, frame)
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
    for module in (rlock, sans_io):
        patch.setattr(module, "current_owner", current)


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
    honest = Hold.may_hand_off

    def may_hand_off(self: Hold, now: float) -> bool:
        wanted, self.release_requested = self.release_requested, False
        passes = honest(self, now)
        self.release_requested = wanted
        return passes

    patch.setattr(hold, "TURN", 60.0)
    patch.setattr(Hold, "may_hand_off", may_hand_off)


def callbacks_run_where_a_request_is_heard(patch: pytest.MonkeyPatch) -> None:
    honest = Callbacks.release_requested

    def release_requested(self: Callbacks, grant: Any) -> None:
        threads, self._threads = self._threads, False
        honest(self, grant)
        self._threads = threads

    patch.setattr(Callbacks, "release_requested", release_requested)
