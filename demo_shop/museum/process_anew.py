"""The process lock that each request makes for itself."""

from __future__ import annotations

import threading


class ProcessAnew:
    """A lock of its own for each request; nobody asks whether it was got."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def acquire(self) -> bool:
        self.lock.acquire(blocking=False)
        return True

    def release(self) -> None:
        self.lock.release()
