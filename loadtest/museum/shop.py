"""A shop with one product. Its buyers are threads; it records who was inside when, and counts the damage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from demo_shop.museum import MuseumLock
from distlock.testing.history import HistoryRecord, check_history

#: A run that takes more than this many seconds has failed.
PATIENCE = 20.0


@dataclass(eq=False)
class MuseumVisit:
    """A buyer: it takes *lock*, reads the stock, thinks, writes what it read minus one, and releases."""

    lock: MuseumLock
    name: str = "product"
    #: The buyer asks for the lock after this event.
    after: threading.Event | None = None
    think: Callable[[], object] = lambda: None
    #: Called between the buyer's work and the release.
    leave: Callable[[], object] = lambda: None
    turned_away: Callable[[], object] = lambda: None
    inside: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    refused: bool = False

    @property
    def caller(self) -> str:
        return str(id(self))


class MuseumShop:
    """A shop with one product. Leaving the ``with`` waits until every buyer has gone."""

    def __init__(self, stock: int = 100) -> None:
        self.initial = self.stock = stock
        self.orders = 0
        self.history: list[HistoryRecord] = []
        self.visits: list[MuseumVisit] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._mutex = threading.Lock()
        self._entered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
        if self._errors:
            raise self._errors[0]
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"A buyer did not come back within {PATIENCE:g} s.")

    def send(self, *visits: MuseumVisit) -> None:
        """Start the threads of these buyers."""
        self.visits += visits
        threads = [threading.Thread(target=self._run, args=(visit,), daemon=True) for visit in visits]
        self._threads += threads
        for thread in threads:
            thread.start()

    def met(self, *visits: MuseumVisit) -> int:
        """Count the buyers, of *visits* or of all, that got the lock while another one had it."""
        among = {visit.caller for visit in visits or self.visits}
        return len(check_history(record for record in self.history if record.caller in among))

    @property
    def sold_twice(self) -> int:
        return self.orders - (self.initial - self.stock)

    @property
    def refused(self) -> int:
        return sum(visit.refused for visit in self.visits)

    def enter(self) -> tuple[float, tuple[int, int]]:
        """Return the time and a fence: a count of entries, because the flawed locks have no fence."""
        with self._mutex:
            self._entered += 1
            return time.monotonic(), (1, self._entered)

    def _run(self, visit: MuseumVisit) -> None:
        try:
            if visit.after is not None and not visit.after.wait(PATIENCE):
                raise TimeoutError("The buyer before did not get in.")
            self.buy(visit)
        except BaseException as error:
            self._errors.append(error)

    def buy(self, visit: MuseumVisit) -> None:
        """Carry out *visit* in the calling thread."""
        asked = time.monotonic()
        if not visit.lock.acquire():
            visit.refused = True
            visit.turned_away()
            return
        granted, fence = self.enter()
        seen = self.stock
        visit.inside.set()
        visit.think()
        self.stock = seen - 1
        with self._mutex:
            self.orders += 1
        released = time.monotonic()
        self.history.append(HistoryRecord(visit.name, visit.caller, asked, granted, released, fence))
        visit.leave()
        visit.lock.release()
        visit.left.set()
