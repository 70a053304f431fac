"""Stops an instance in the middle of a purchase, while the sale goes on, and lets it continue.

The purchase asks us in the moment in which it is to stop, and waits for our answer. So it is stopped exactly
there: nobody hopes for the right millisecond.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from loadtest.child import PATIENCE
from loadtest.moments import read_moments
from loadtest.scenario import Stop
from loadtest.stack import Stack

#: The others have done what they can if nothing was sold for so long, seconds.
STANDSTILL = 1.5


@dataclass(frozen=True, slots=True)
class Stopped:
    """An instance stood still from *since* to *until*, Unix times."""

    instance: str
    #: The purchase that was under way, as its buyer calls it.
    purchase: str
    since: float
    until: float


class Stopping:
    """Stops *instance* once; closed by leaving the ``with``."""

    def __init__(self, stop: Stop, instance: str) -> None:
        self.stop, self.instance = stop, instance
        #: What was done; None until it is over.
        self.stopped: Stopped | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.2)
        self._sale_is_over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    @property
    def where(self) -> str:
        """``SHOP_STALL`` of the instances."""
        return f"{self.instance}:{self.stop.at}:{self._listener.getsockname()[1]}"

    @contextmanager
    def beside(self, stack: Stack) -> Iterator[None]:
        """While the block, which is a sale, runs."""
        thread = threading.Thread(target=self._run, args=[stack])
        thread.start()
        try:
            yield
        finally:
            self._sale_is_over.set()
            thread.join()

    def _run(self, stack: Stack) -> None:
        if (purchase := self._wait_for_purchase()) is not None:
            with purchase:
                name = purchase.makefile().read()
                with self._interrupted(stack, purchase) as since:
                    self._let_others_buy(stack, since)
                    self.stopped = Stopped(self.instance, name, since, time.time())

    @contextmanager
    def _interrupted(self, stack: Stack, purchase: socket.socket) -> Iterator[float]:
        """The purchase goes no further in the block. Gives the time since when."""
        victim = stack.instances[stack.names.index(self.instance)]
        try:
            victim.freeze()
            since = time.time()
            # It goes on as soon as it runs again.
            purchase.close()
            yield since
        finally:
            victim.thaw()

    def _wait_for_purchase(self) -> socket.socket | None:
        while not self._sale_is_over.is_set():
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
        return None

    def _let_others_buy(self, stack: Stack, since: float) -> None:
        """Until they have the lock, and then until enough is sold or nothing moves any more."""
        before, patience = stack.ledger(), time.monotonic() + PATIENCE
        enough = before.sold + (before.stock if self.stop.sold is None else self.stop.sold)
        while not self._passed_on(stack, since) and time.monotonic() < patience:
            if self._sale_is_over.wait(0.05):
                return
        sold, moved = before.sold, time.monotonic()
        while sold < enough and time.monotonic() - moved < STANDSTILL:
            if self._sale_is_over.wait(0.02):
                return
            if (now := stack.ledger().sold) > sold:
                sold, moved = now, time.monotonic()

    def _passed_on(self, stack: Stack, since: float) -> bool:
        return any(
            moment.what == "granted" and moment.at > since for moment in read_moments(stack.shop.journal)
        )
