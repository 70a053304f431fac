"""``with locks.lock("product_1"):`` in Django: no transaction outlives the block."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from asgiref.sync import SyncToAsync, sync_to_async

from distlock.blocks import Entry
from distlock.lock import Lock
from distlock.steps import Park, Steps, TaskGate, ThreadGate
from django_distlock.leftovers import refuse_left, roll_back


class BlockLock(Lock):
    """A lock whose ``with`` block rolls back what it leaves open: its COMMIT would come after the release."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The database that a block has left a transaction open in, until that is told.
        self._left: dict[int, str] = {}

    def _leave(self, block: Entry) -> Steps[None]:
        try:
            # A guard has ended its own.
            if not self.of_guard:
                left = roll_back() if isinstance(block.gate, ThreadGate) else (yield from _finished())
                if left is not None:
                    self._left[id(block)] = left
        finally:
            yield from super()._leave(block)

    def _tell(self, block: Entry | None, exc_info: tuple[Any, ...]) -> None:
        left = self._left.pop(id(block), None)
        if not exc_info or exc_info[0] is None:
            refuse_left(self.names, left)
        super()._tell(block, exc_info)


def _finished() -> Steps[str | None]:
    """Wait until the thread of this request's `sync_to_async` is idle, and `roll_back` there.

    Where the client goes away, what runs there goes on, and would be committed after the release.
    """
    if SyncToAsync.thread_sensitive_context.get(None) is None:
        return None  # Not in a request: all tasks share one thread, which may wait for this very lock.
    idle = asyncio.ensure_future(sync_to_async(roll_back)())
    gate = TaskGate()
    idle.add_done_callback(lambda _: gate.wake())
    cancelled: asyncio.CancelledError | None = None
    while not idle.done():
        try:
            yield Park(gate, math.inf)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return idle.result()
