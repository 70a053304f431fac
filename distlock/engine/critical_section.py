"""The critical section of one engine: its mutex, and what interrupted callers have left to be undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distlock import reentrance


class CriticalSection:
    """Under `mutex` one thread at a time changes rooms, holds and grants. No I/O there.

    *wake* is called, without the mutex, when there is something for another thread to undo.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: the threads that had the mutex, or left something, are the parent's."""
        self.mutex = reentrance.mutex()
        #: Whether a signal handler or a finaliser is running, and its own thread has the mutex.
        self.reentered = self.mutex._is_owned
        #: What is still to be undone: `catch_up` does it.
        self.left: deque[Callable[[], None]] = deque()

    def undo(self, error: BaseException, undo: Callable[[], None]) -> None:
        """Call *undo* under the mutex, because of *error*. It may be called twice, and does no I/O.

        A thread that has the mutex can't take it again, and steps that are collected as garbage get their
        GeneratorExit anywhere, even when the interpreter ends. The next caller that takes the mutex catches
        up for those.
        """
        self.left.append(undo)
        if isinstance(error, GeneratorExit) or self.reentered():
            self._wake()
            return
        with self.mutex:
            self.catch_up()

    def catch_up(self) -> None:
        """Under the mutex."""
        while self.left:
            # It stays until it is done: this may be interrupted as well.
            undo = self.left[0]
            undo()
            if self.left and self.left[0] is undo:
                self.left.popleft()
