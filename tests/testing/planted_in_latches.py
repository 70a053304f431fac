"""Latches as people write them: each has one bug. The kit must find every one."""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import replace
from typing import Any

import pytest

from distlock.backends.latches import LatchState
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.backend import MemoryLatches
from distlock.backends.memory.service import LatchTable, MemoryService
from distlock.engine.sans_io import Call
from distlock.errors import BackendUnavailable
from distlock.locks import latch_waits
from distlock.locks.latch import Latch
from distlock.locks.latch_waits import LatchWaits

_services: dict[tuple[type, str], MemoryService] = {}


class Planted(MemoryBackend):
    """A backend whose latches have the bug."""

    latches_class: type[LatchTable] = LatchTable

    def __init__(self, url: str) -> None:
        known = _services.get((self.latches_class, url))
        if known is None:
            known = _services[self.latches_class, url] = MemoryService()
            known.latches = self.latches_class(known.now)
        super().__init__(url, known)


def planted(latches_class: type[LatchTable]) -> type[Planted]:
    words = {"latches_class": latches_class, "__module__": latches_class.__module__}
    return type(latches_class.__name__, (Planted,), words)


@planted
class Honest(LatchTable):
    """The control: it has no bug."""


def _open(ttl: float = 60.0) -> LatchState:
    return LatchState("nobody", 1, 0, ttl)


@planted
class TheMissingAreOpen(LatchTable):
    """A counter that is not there counts as 0, as in Redisson's ``await``."""

    def look(self, key: str, *more: Any) -> LatchState | None:
        return super().look(key, *more) or _open()


@planted
class CountingMakes(LatchTable):
    """DECR makes what is not there."""

    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        if self._record(key) is None:
            self.make(key, 1, 60.0, "nobody")
        return super().count_down(key, by, part, life)


@planted
class MakingMakesAnew(LatchTable):
    def make(self, key: str, *more: Any) -> LatchState:
        self._records.pop(key, None)
        return super().make(key, *more)


@planted
class CountsGoBelowNothing(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        record = self._record(key)
        if record is not None and by > record.left:
            record.left -= by
            return self._state(key)
        return super().count_down(key, by, part, life)


@planted
class RepetitionsCount(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        return super().count_down(key, by, secrets.token_hex(16), life)


@planted
class ReadsThenWrites(LatchTable):
    """GET, and then SET."""

    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        with self._mutex:
            record = self._record(key)
            left = record.left if record is not None else 0
        threading.Event().wait(0.001)
        with self._mutex:
            if record is not None:
                record.left = left
            return super().count_down(key, by, part, life)


@planted
class NothingEnds(LatchTable):
    """No TTL, as in Redisson."""

    def make(self, key: str, total: int, ttl: float, maker: str) -> LatchState:
        return super().make(key, total, 1e9 * ttl, maker)


@planted
class OpenForEver(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        state = super().count_down(key, by, part, life)
        if state is not None and not state.left:
            self._records[key] = self._records[key][0], 1e9
        return state


@planted
class CountsDontProlong(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        _, ends = self._records.get(key, (None, 0.0))
        state = super().count_down(key, by, part, life)
        if key in self._records:
            self._records[key] = self._records[key][0], ends
        return state


@planted
class RepetitionsProlong(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        if (record := self._record(key)) is not None:
            self._records[key] = record, self._now() + record.ttl
        return super().count_down(key, by, part, life)


@planted
class OldPartsAreRemembered(LatchTable):
    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        seen = self.__dict__.setdefault("seen", {}).setdefault(key, set())
        if part in seen:
            return self.look(key, None, None)
        seen.add(part)
        return super().count_down(key, by, part, life)


@planted
class CountsAreOfAnyLife(LatchTable):
    """DECR by a name, whatever bears it by now."""

    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        return super().count_down(key, by, part)


@planted
class TheNextIsDeletedToo(LatchTable):
    """DEL by a name, whatever bears it by now."""

    def delete(self, key: str, life: str = "") -> bool:
        return super().delete(key)


@planted
class AllHaveDeletedIt(LatchTable):
    def delete(self, key: str, life: str = "") -> bool:
        with self._mutex:
            there = self._record(key) is not None
        threading.Event().wait(0.05)
        super().delete(key, life)
        return there


@planted
class NobodyIsTold(LatchTable):
    def _tell(self, key: str) -> None:
        self.watched.pop(key, None)


@planted
class OneIsTold(LatchTable):
    def _tell(self, key: str) -> None:
        self.watched[key] = dict(list(self.watched.get(key, {}).items())[:1])
        super()._tell(key)


@planted
class TheDeletedLive(LatchTable):
    """It is only counted down to its end."""

    def delete(self, key: str, life: str = "") -> bool:
        record = self._record(key)
        if record is not None:
            record.left = 0
        return record is not None


@planted
class NobodyIsToldOfItsEnd(LatchTable):
    def delete(self, key: str, life: str = "") -> bool:
        return self._records.pop(key, None) is not None


@planted
class WatchesAreSetOnce(LatchTable):
    def look(self, key: str, who: object, told: Any) -> LatchState | None:
        known = self.__dict__.setdefault("known", set())
        if told is not None and (key, who) in known:
            told = None
        known.add((key, who))
        return super().look(key, who, told)


# -- above the lock service ----------------------------------------------------------------------


def _nothing(*arguments: Any, **more: Any) -> None:
    return None


def nobody_is_woken_after_a_reconnect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LatchWaits, "missed_notifications", _nothing)


def hints_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LatchWaits, "notified", _nothing)


def each_attempt_is_another_part(patch: pytest.MonkeyPatch) -> None:
    honest = MemoryLatches.count_latch_down

    def count(self: Any, key: str, by: int, part: str, *more: Any) -> Any:
        return honest(self, key, by, secrets.token_hex(16), *more)

    patch.setattr(MemoryLatches, "count_latch_down", count)


def a_repetition_counts_any_life(patch: pytest.MonkeyPatch) -> None:
    honest = MemoryLatches.count_latch_down

    def count(self: Any, key: str, by: int, part: str, life: str, *more: Any) -> Any:
        return honest(self, key, by, part, "", *more)

    patch.setattr(MemoryLatches, "count_latch_down", count)


def a_repetition_deletes_any_life(patch: pytest.MonkeyPatch) -> None:
    honest = MemoryLatches.delete_latch
    patch.setattr(MemoryLatches, "delete_latch", lambda self, key, life, *more: honest(self, key, "", *more))


def all_lives_are_one(patch: pytest.MonkeyPatch) -> None:
    honest = MemoryLatches.make_latch

    def make(self: Any, key: str, total: int, ttl: float, maker: str, *more: Any) -> Any:
        return honest(self, key, total, ttl, maker.partition("-")[0], *more)

    patch.setattr(MemoryLatches, "make_latch", make)


def each_attempt_is_another_maker(patch: pytest.MonkeyPatch) -> None:
    honest = MemoryLatches.make_latch

    def make(self: Any, key: str, total: int, ttl: float, maker: str, *more: Any) -> Any:
        return honest(self, key, total, ttl, secrets.token_hex(16), *more)

    patch.setattr(MemoryLatches, "make_latch", make)


def the_gone_are_open(patch: pytest.MonkeyPatch) -> None:
    honest = latch_waits._apply

    def tell(watched: Any, waiters: Any, state: LatchState | None) -> None:
        gone = next(iter(waiters)).life if state is None else None
        honest(watched, waiters, state or replace(_open(), maker=gone or "nobody"))

    patch.setattr(latch_waits, "_apply", tell)


def the_next_one_is_the_same(patch: pytest.MonkeyPatch) -> None:
    honest = latch_waits._apply

    def tell(watched: Any, waiters: Any, state: LatchState | None) -> None:
        for waiter in waiters:
            waiter.life = None
        honest(watched, waiters, state)

    patch.setattr(latch_waits, "_apply", tell)


def to_delete_is_tried_once(patch: pytest.MonkeyPatch) -> None:
    def delete(self: Latch, parker: Any) -> Any:
        return (yield Call(self._latches.delete_latch, self._key, "", until=math.inf))

    patch.setattr(Latch, "_delete", delete)


def another_count_is_nobodys_business(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Latch, "_checked", lambda self, state: state)


def the_first_trouble_ends_each_wait(patch: pytest.MonkeyPatch) -> None:
    honest = latch_waits._apply_failure

    def tell(watched: Any, waiters: Any, failure: Exception) -> None:
        watched.ends = 0.0
        honest(watched, waiters, failure)

    patch.setattr(latch_waits, "_apply_failure", tell)


def trouble_is_a_time_out(patch: pytest.MonkeyPatch) -> None:
    honest = LatchWaits.wait

    def wait(self: LatchWaits, *arguments: Any) -> Any:
        try:
            return (yield from honest(self, *arguments))
        except BackendUnavailable:
            return None

    patch.setattr(LatchWaits, "wait", wait)


def each_waiter_looks_for_itself(patch: pytest.MonkeyPatch) -> None:
    honest = LatchWaits._look

    def look(self: LatchWaits, due: Any) -> None:
        for key, waiters in due.items():
            for waiter in waiters:
                honest(self, {key: {waiter}})

    patch.setattr(LatchWaits, "_look", look)


def the_interrupted_stay(patch: pytest.MonkeyPatch) -> None:
    class Sticky(set[Any]):
        def discard(self, one: object) -> None: ...

    honest = latch_waits._Watched.__init__

    def make(self: Any) -> None:
        honest(self)
        self.waiters = Sticky()

    patch.setattr(latch_waits._Watched, "__init__", make)


def a_close_leaves_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LatchWaits, "close", _nothing)


def the_thread_never_ends(patch: pytest.MonkeyPatch) -> None:
    honest = LatchWaits._run

    def run(self: LatchWaits) -> None:
        honest(self)
        threading.Event().wait(10.0)

    patch.setattr(LatchWaits, "_run", run)
