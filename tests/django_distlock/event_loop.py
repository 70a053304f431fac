"""What tests of async code share: waiting for what is to be seen, and counting who is inside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.http import HttpRequest, HttpResponse

from distlock.testing.waits import engine_of
from django_distlock import locks


def waiting() -> int:
    return engine_of(locks["default"]).queues.waiting


@contextmanager
def held_by_somebody_else(name: str = "product_1") -> Iterator[threading.Event]:
    """The lock is held by another thread. Gives what lets it go before the end of the block."""
    taken, go = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock(name):
            taken.set()
            go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(10)
    try:
        yield go
    finally:
        go.set()
        thread.join()


async def soon(seen: Callable[[], bool]) -> None:
    """Let the loop run until it is seen."""
    async with asyncio.timeout(10):
        while not seen():
            await asyncio.sleep(0)


class Counter:
    """How many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = self.served = 0

    def enter(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)

    def leave(self) -> None:
        self.inside -= 1
        self.served += 1

    async def view(self, request: HttpRequest, id: int) -> HttpResponse:
        self.enter()
        for _ in range(5):
            await asyncio.sleep(0)
        self.leave()
        return HttpResponse("sold")
