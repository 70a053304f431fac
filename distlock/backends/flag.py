"""A flag that one thread raises and others wait for. It stays up.

A `threading.Event` is entered by code in Python: a signal handler that raises in there leaves it locked, and
every later `wait` and `set` waits for ever.
"""

from __future__ import annotations

import threading


class Flag:
    """As `threading.Event`, without `clear`."""

    def __init__(self) -> None:
        self._raised = False
        self._down = threading.Lock()
        self._down.acquire()

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._raised = True
        try:
            self._down.release()
        except RuntimeError:
            pass  # It is up already.

    def wait(self, timeout: float) -> bool:
        """Whether it is up, after *timeout* seconds at the most."""
        if not self._raised and self._down.acquire(timeout=timeout):
            # For the next waiter.
            self.set()
        return self._raised
