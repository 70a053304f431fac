"""A namespace whose names an engine acquires from a lock service."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from distlock import signal_safety
from distlock.backends.base import refuse_lacking
from distlock.backends.inspectable import (
    MOST_SHOWN,
    Examinable,
    Finding,
    KeyState,
    MadeByUse,
    SeenProcess,
    StatusRow,
)
from distlock.backends.latches import Latches, LatchState
from distlock.backends.protocols import Prepares
from distlock.engine.engine import REPLY_GRACE, Engine
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Commands, Parker
from distlock.grants.grant import Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.latch_waits import LatchWaits
from distlock.locks.namespace import Namespace
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, LATCH, LOCK, PERMIT, SEMAPHORE, Kind, Terms


class EngineNamespace(Namespace):
    """The names under *prefix* that *engine* acquires from its lock service."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        super().__init__(prefix, engine.options)
        self.engine = engine
        self.epoch = engine.epoch
        self._key_prefix = f"{prefix}:"
        self._latches: LatchWaits | None = None
        self._kind: Kind = LOCK
        self._others: dict[Kind, EngineNamespace] = {}

    def refuse_lacking(self, capability: str, wish: str) -> None:
        backend = self.engine.backend
        refuse_lacking(backend, backend.capabilities, capability, wish)

    @property
    def semaphores(self) -> Namespace:
        return self._of_kind(SEMAPHORE)

    def of_kind(self, kind: Kind) -> Namespace | None:
        has = self.engine.backend.capabilities
        there = {LOCK: True, SEMAPHORE: has.permits, LATCH: has.latch}[kind]
        return self._of_kind(kind) if there else None

    def _of_kind(self, kind: Kind) -> EngineNamespace:
        if kind == self._kind:
            return self
        if (found := self._others.get(kind)) is not None:
            return found
        # No lock has such a key, because no prefix has a slash.
        made = EngineNamespace(self.engine, f"{self.prefix}/{kind}")
        made._kind, made.has_owners = kind, False
        # setdefault() is one step, so that threads at the same time get the same namespace.
        return self._others.setdefault(kind, made)

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        if terms.mode == PERMIT and self is not self.semaphores:
            return self.semaphores.acquire(names, parker, seconds, terms)
        if len(names) == 1:
            return self.engine.acquire(self._key_prefix + names[0], names[0], parker, seconds, terms)
        return self._acquire_all(names, parker, seconds, terms)

    def _acquire_all(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[MultiGrant | None]:
        if terms.mode == EXCLUSIVE:
            # Refuse an upgrade before the first wait: later the refusal would come late, or never.
            self.refuse_upgrade(names, parker.owner)
        now = self.engine.now
        deadline = now() + seconds
        grants: list[NameGrant] = []
        try:
            for name in names:
                left = max(0.0, deadline - now()) if seconds else 0.0
                if seconds and not left:
                    break
                grant = yield from self.engine.acquire(self._key_prefix + name, name, parker, left, terms)
                if grant is None:
                    break
                grants.append(grant)
            else:
                return MultiGrant(grants)
        except BaseException as error:
            for grant in reversed(grants):
                grant._abandon(error)
            raise
        yield from MultiGrant(grants)._release(deadline + REPLY_GRACE if seconds else math.inf)
        return None

    def refuse_upgrade(self, names: tuple[str, ...], owner: Owner) -> None:
        self.engine.refuse_upgrade({self._key_prefix + name: name for name in names}, owner)

    def refuse_overload(self, names: Iterable[str], seconds: float) -> None:
        for name in names:
            self.engine.refuse_overload(self._key_prefix + name, seconds)

    def abandon(self, names: tuple[str, ...], parker: Parker, error: BaseException) -> None:
        self.engine.abandon([self._key_prefix + name for name in names], parker, error)
        if (semaphores := self._others.get(SEMAPHORE)) is not None:
            # A guard of a semaphore abandons by way of the namespace of locks.
            semaphores.abandon(names, parker, error)

    def is_holder(self, name: str, owner: Owner) -> bool:
        return self.engine.is_holder(self._key_prefix + name, owner)

    def grants(self) -> list[Grant]:
        return [grant for grant in self.engine.grants() if grant.namespace == self.prefix]

    def locked(self, name: str) -> bool:
        return self.engine.locked(self._key_prefix + name)

    @property
    def latches(self) -> LatchWaits:
        if self._latches is None:
            backend = self.engine.backend
            self.refuse_lacking("latch", "latch()")
            assert isinstance(backend, Latches)
            with self.entries_mutex:
                # Make only one: the engine notifies only the latest.
                if self._latches is None:
                    waits = LatchWaits(backend, self.engine.publish_soon)
                    self.engine.sink.latch_waits = self._latches = waits
                    self.engine.status.more_rows = waits.rows
        return self._latches

    def close(self) -> None:
        if self._latches is not None:
            if self.engine.section.reentered():
                # The thread of the latches may wait for the engine's mutex, which the running thread has.
                threading.Thread(target=self.close, name="distlock-close").start()
                return
            self._latches.close()
        self.engine.close(super().close)

    # -- inspecting locks ------------------------------------------------------------------------

    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        key = self._key_prefix + name
        state = self.engine.inspection.inspect(key)
        if not self.engine.backend.capabilities.fair:
            state = self._with_waiters(state, key)
        return state, self.engine.row(key), self.engine.inspection.process

    def _with_waiters(self, state: KeyState, key: str) -> KeyState:
        """Return *state* with the waiters that processes publish, the longest wait first.

        A lock service that is not fair has no queue to show.
        """
        told = [
            (seen.row.waiting_since, seen)
            for seen in self.engine.inspection.announced(key)
            if seen.row is not None and seen.row.key == key and seen.row.waiting and not seen.silent
        ]
        waiting = [seen for _, seen in sorted(told, key=itemgetter(0))]
        return replace(state, queue=waiting[:MOST_SHOWN], waiting=len(waiting))

    def known(self, name: str) -> tuple[KeyState | None, StatusRow | None]:
        key = self._key_prefix + name
        return self.engine.status.last_state(key), self.engine.row(key)

    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        start = len(self._key_prefix)
        for seen in self.engine.inspection.announced(self._key_prefix + before):
            row = self._still_true(seen) if seen.silent else seen.row
            if row is not None:
                yield row.key[start:], replace(seen, row=row)

    def _still_true(self, seen: SeenProcess) -> StatusRow | None:
        """Return the last row of a silent process, without what the lock service contradicts.

        Return None if nothing of the row is true any more.
        """
        if (row := seen.row) is None:
            return None
        state = self.engine.inspection.inspect(row.key)
        holders = [one.process for one in (state.holder, *state.beside) if one is not None]
        if seen.process not in holders:
            row = replace(row, held_since=0.0, holding=0)
        if seen.process not in [one.process for one in state.queue]:
            row = replace(row, waiting=0)
        return row if row.held_since or row.waiting else None

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        return self.engine.inspection.break_hold(self._key_prefix + name, number)

    def request_release(self, name: str) -> bool:
        self.refuse_lacking("notify", "request_release()")
        return self.engine.inspection.request_release(self._key_prefix + name)

    def latch_states(self, names: Sequence[str]) -> Sequence[LatchState | None]:
        keys = [f"{self.prefix}/{LATCH}:{name}" for name in names]
        states: Sequence[LatchState | None] = signal_safety.call(self.latches.latches.look_at_latches, keys)
        return states

    def examine(self) -> Iterator[Finding]:
        backend = self.engine.backend
        if not isinstance(backend, Examinable):
            return iter(())
        found: list[Finding] = signal_safety.call(list, backend.examine())
        return iter(found)

    def prepare(self) -> str:
        """See `distlock.locks.namespace.Namespace`."""
        backend = self.engine.backend
        if not isinstance(backend, Prepares):
            return "Nothing has to be made: locks can be taken."
        said: str = signal_safety.call(backend.prepare)
        return said

    def unmade(self) -> Finding | None:
        backend = self.engine.backend
        if not isinstance(backend, MadeByUse):
            return None
        missing: Finding | None = signal_safety.call(backend.unmade)
        return missing
