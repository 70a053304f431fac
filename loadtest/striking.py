"""Strikes the lock service while one purchase is inside, and many wait for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loadtest.outages import Struck
from loadtest.scenario import Stop
from loadtest.stack import Stack
from loadtest.stopping import Stopping


class Striking(Stopping):
    """The purchase goes on at once; where *forgets*, when the others have had their turn."""

    def __init__(self, struck: Struck, forgets: bool, stop: Stop, instance: str) -> None:
        super().__init__(stop, instance)
        self._struck, self._forgets = struck, forgets

    @contextmanager
    def beside(self, stack: Stack) -> Iterator[None]:
        self._struck.prepare()
        with super().beside(stack):
            yield

    def _run(self, stack: Stack) -> None:
        super()._run(stack)
        # What a thread has started the kernel ends with it: see `loadtest.child`.
        self._sale_is_over.wait()

    @contextmanager
    def _interrupted(self, stack: Stack, purchase: socket.socket) -> Iterator[float]:
        since = time.time()
        self._struck.strike()
        yield since

    def _let_others_buy(self, stack: Stack, since: float) -> None:
        if self._forgets:
            super()._let_others_buy(stack, since)
