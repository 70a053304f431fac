"""What the server says to one request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import OperationTimeoutError

#: For answers that nobody waits for.
Told = Callable[["Answer"], None]


class Answer:
    """To be waited for, or *told* in the thread that reads it, where nothing may block. Threads share it.

    In place of kazoo's result, whose condition costs more than all the rest.
    """

    __slots__ = ("_arrived", "_ready", "_told", "_value", "error")

    def __init__(self, told: Told | None = None) -> None:
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self._ready = False
        self._value: Any = None
        #: What the server refused it with, or the connection did.
        self.error: BaseException | None = None
        self._told = told

    def ready(self) -> bool:
        return self._ready

    def wait(self, timeout: float) -> bool:
        """Whether it is there, within *timeout* seconds."""
        if not self._ready and self._arrived.acquire(timeout=max(0.0, timeout)):
            # For others that wait.
            self._arrived.release()
        return self._ready

    def tell(self, told: Told) -> None:
        """Have *told* called when it is there. Not always, if it is there by now: look with `ready`."""
        self._told = told

    def get(self) -> Any:
        """What the server says. Raises `error`."""
        if not self._ready:
            raise OperationTimeoutError("no answer yet")
        if self.error is not None:
            raise self.error
        return self._value

    # -- for kazoo -------------------------------------------------------------------------------

    def set(self, value: Any = None) -> None:
        self._arrive(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._arrive(None, error)

    def _arrive(self, value: Any, error: BaseException | None) -> None:
        # kazoo may tell twice that there is no connection.
        if not self._ready:
            self._value, self.error = value, error
            self._ready = True
            self._arrived.release()
            if self._told is not None:
                self._told(self)
