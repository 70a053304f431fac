"""Locks in Django's own code: no transaction that begins under one outlives it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asgiref.sync import SyncToAsync, sync_to_async

from distlock.blocks import Entry
from distlock.engine.steps import Gate, NewGate, Park, Steps, TaskGate
from distlock.grant import Grant
from distlock.grant_wrapper import GrantWrapper
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.owner import Owner, current_owner, in_event_loop
from distlock.rlock import RLock
from django_distlock.clients.waits import request_threads, wait_for_us, watched
from django_distlock.guarding.leftovers import give_up, refuse_early, refuse_left, roll_back


class BlockLock(Lock):
    """A lock that rolls back what is open at its end: its COMMIT would come after the release."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The database that a block has left a transaction open in, until that is told.
        self._left: dict[int, str] = {}

    def _ask(self, names: tuple[str, ...], gate: Gate, seconds: float) -> Steps[Grant | None]:
        grant = yield from super()._ask(names, gate, seconds)
        # A guard ends its own, and looks at its lock before COMMIT. A row is locked as long as a transaction.
        if grant is None or self.of_guard or grant.held_by_transaction:
            return grant
        return EnclosingGrant(grant, current_owner(), self._locks)

    def _leave(self, block: Entry) -> Steps[None]:
        try:
            if not self.of_guard and self._gives_back(block):
                left = yield from _where_it_runs(roll_back, self._locks, self.names)
                if left is not None:
                    self._left[id(block)] = left
        finally:
            yield from super()._leave(block)

    def _gives_back(self, block: Entry) -> bool:
        """Whether the end of *block* releases anything."""
        return True

    def _tell(self, block: Entry | None, exc_info: tuple[Any, ...]) -> None:
        left = self._left.pop(id(block), None)
        if not exc_info or exc_info[0] is None:
            refuse_left(self.names, left)
        super()._tell(block, exc_info)


class BlockRLock(BlockLock, RLock):
    """A re-entrant one: its end is where its owner has left it as often as entered."""

    def _gives_back(self, block: Entry) -> bool:
        return self._once_less(block.owner)[1] is not None


class EnclosingGrant(GrantWrapper):
    """A grant whose release is an error inside a transaction that its owner has begun under it."""

    __slots__ = ("_client", "_owner")

    def __init__(self, grant: Grant, owner: Owner, client: Locks) -> None:
        super().__init__(grant)
        self._owner = owner
        self._client = client

    def __eq__(self, other: object) -> bool:
        # The signals tell of that of the lock service.
        return self._grant == (other._grant if isinstance(other, EnclosingGrant) else other)

    def __hash__(self) -> int:
        return hash(self._grant)

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: EnclosingGrant(part, self._owner, self._client) for name, part in parts.items()}

    def _release(self, until: float = math.inf) -> Steps[None]:
        early: str | None = None
        try:
            # Another thread has transactions of its own, and a lock that is lost is not given back.
            if not self.released and not self.lost and self._owner == current_owner():
                early = yield from _where_it_runs(give_up, self._client, self.names)
        finally:
            yield from self._grant._release(until)
        if isinstance(sys.exc_info()[1], Exception | None):
            refuse_early(self.names, early)


def _where_it_runs(look: Callable[[], str | None], client: Locks, names: Sequence[str]) -> Steps[str | None]:
    """Call *look* in the thread that does the database work of the running code, which holds *names*."""
    if not in_event_loop():
        return look()
    gate = yield NewGate()
    if isinstance(gate, TaskGate):
        return (yield from _when_idle(look, gate, lambda: wait_for_us(request_threads(), client, names)))
    return look()


def _when_idle(
    look: Callable[[], str | None], gate: TaskGate, waits_for_us: Callable[[], bool]
) -> Steps[str | None]:
    """Wait until the thread of this request's `sync_to_async` is idle, and call *look* there.

    Where the client goes away, what runs there goes on, and would be committed after the release. Work that
    waits for this very lock is not waited for: it would wait in vain, and so would we.
    """
    if SyncToAsync.thread_sensitive_context.get(None) is None:
        return None  # Not in a request: all tasks share one thread.
    idle = asyncio.ensure_future(sync_to_async(look)())
    idle.add_done_callback(lambda _: gate.wake())
    cancelled: asyncio.CancelledError | None = None
    # Any thread's wait: that of the request may be started only now.
    with watched(gate):
        while not (idle.done() or waits_for_us()):
            try:
                yield Park(gate, math.inf)
            except asyncio.CancelledError as error:
                cancelled = error
    left = None if idle.cancel() else idle.result()
    if cancelled is not None:
        raise cancelled
    return left
