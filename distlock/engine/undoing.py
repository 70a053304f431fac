"""Undoing: what interrupted callers leave behind is put right by the next caller that takes the mutex."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distlock.reentrance import Mutex


class Undoing:
    """For one engine. *wake* is called, without a mutex, when there is something for another thread to do."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._left: deque[Callable[[], None]] = deque()

    def undo(self, mutex: Mutex, error: BaseException, undo: Callable[[], None]) -> None:
        """Call *undo* under *mutex*, because of *error*. It may be called twice, and does no I/O.

        A thread that has the mutex can't take it again, and steps that are collected as garbage get their
        GeneratorExit anywhere, even when the interpreter ends. The next caller that takes the mutex catches
        up for those.
        """
        self._left.append(undo)
        if isinstance(error, GeneratorExit) or mutex._is_owned():
            self._wake()
            return
        with mutex:
            self.catch_up()

    def catch_up(self) -> None:
        """Under the mutex."""
        while self._left:
            # It stays until it is done: this may be interrupted as well.
            undo = self._left[0]
            undo()
            if self._left and self._left[0] is undo:
                self._left.popleft()

    def clear(self) -> None:
        self._left.clear()
