"""The engine's mutex, and the cleanup after interrupted callers, which the next owner of the mutex does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distlock import reentrance


class CriticalSection:
    """Under `mutex` one thread at a time changes wait queues, holds and grants. No I/O happens under it.

    An exception may interrupt a caller at any instruction: one of a signal handler, or a cancellation. Its
    cleanup is a function without I/O in `left`. The next owner of the mutex calls it.
    """

    def __init__(self) -> None:
        #: Called, without the mutex, if another thread has to run the cleanup.
        self.wake: Callable[[], None] = lambda: None
        self.after_fork()

    def after_fork(self) -> None:
        """Set the initial state; in a forked child, too: the cleanup is the parent's."""
        self.mutex = reentrance.mutex()
        #: Returns whether the running thread owns the mutex. Then a signal handler or a finaliser is calling.
        self.reentered = self.mutex._is_owned
        #: The cleanup to run.
        self.left: deque[Callable[[], None]] = deque()

    def undo(self, error: BaseException, cleanup: Callable[[], None]) -> None:
        """Run *cleanup* under the mutex, because of *error*. It may run twice.

        The next owner runs it if this thread can't: if a signal handler has interrupted the owner of the
        mutex, or if *error* is the GeneratorExit of garbage collection, which may come at any time.
        """
        self.left.append(cleanup)
        if isinstance(error, GeneratorExit) or self.reentered():
            self.wake()
            return
        with self.mutex:
            self.catch_up()

    def catch_up(self) -> None:
        """Run the cleanup after interrupted callers. The caller owns the mutex."""
        while self.left:
            # It stays in the queue until it is done, because it may be interrupted, too.
            cleanup = self.left[0]
            cleanup()
            if self.left and self.left[0] is cleanup:
                self.left.popleft()
