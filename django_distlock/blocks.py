"""``with locks.lock("product_1"):`` in Django: no transaction outlives the block."""

from __future__ import annotations

from typing import Any

from distlock.blocks import Entry
from distlock.lock import Lock
from distlock.steps import Steps, ThreadGate
from django_distlock.leftovers import refuse_left, roll_back


class BlockLock(Lock):
    """A lock whose ``with`` block rolls back what it leaves open: its COMMIT would come after the release."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The database that a block has left a transaction open in, until that is told.
        self._left: dict[int, str] = {}

    def _leave(self, block: Entry) -> Steps[None]:
        # A guard has ended its own, and async code has its connections in another thread.
        on_thread = isinstance(block.gate, ThreadGate)
        if on_thread and not self.of_guard and (left := roll_back()) is not None:
            self._left[id(block)] = left
        yield from super()._leave(block)

    def _tell(self, block: Entry | None, exc_info: tuple[Any, ...]) -> None:
        left = self._left.pop(id(block), None)
        if not exc_info or exc_info[0] is None:
            refuse_left(self.names, left)
        super()._tell(block, exc_info)
