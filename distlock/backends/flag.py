"""A flag that one thread sets and others wait for. Nothing clears it.

`threading.Event` is written in Python: a signal handler that raises inside of it leaves its lock locked, and
every later `wait` and `set` blocks for ever.
"""

from __future__ import annotations

import threading


class Flag:
    """A `threading.Event` without `clear`."""

    def __init__(self) -> None:
        self._set = False
        #: Locked until the flag is set.
        self._unset = threading.Lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        try:
            self._unset.release()
        except RuntimeError:
            pass  # It is set already.

    def wait(self, timeout: float) -> bool:
        """Wait *timeout* seconds at most. Return whether the flag is set."""
        if not self._set and self._unset.acquire(timeout=timeout):
            # Unlock it for the next waiter.
            self.set()
        return self._set
