"""A function that takes no deadline. It is given a thread, and left to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, TypeVar

from distlock import clock

T = TypeVar("T")


class Aside(Generic[T]):
    """Calls *function* in a thread called *name*. One call at a time, however many wait for its answer.

    Belongs to one process.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._name = name
        self._mutex = threading.Lock()
        self._running: Future[T] | None = None

    def answer(self, deadline: float, late: str) -> T:
        """What the function returns or raises. Raises TimeoutError(*late*) after *deadline*."""
        with self._mutex:
            running = self._running
            if running is None:
                running = Future()
                threading.Thread(target=self._run, args=(running,), name=self._name, daemon=True).start()
                self._running = running
        try:
            return running.result(max(0.0, deadline - clock.now()))
        except FutureTimeoutError:
            if running.done():
                # It came just now; or the function raised such an error itself.
                return running.result()
            raise TimeoutError(late) from None

    def _run(self, running: Future[T]) -> None:
        failure: BaseException | None = None
        try:
            found = self._function()
        except BaseException as error:
            failure = error
        with self._mutex:
            self._running = None
        if failure is None:
            running.set_result(found)
        else:
            running.set_exception(failure)
