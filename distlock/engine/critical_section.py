"""The engine's mutex, and the cleanup after interrupted callers, which the next owner of the mutex does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distlock import signal_safety


class CriticalSection:
    """The engine's mutex, and the pending cleanup after interrupted callers.

    Only the owner of `mutex` changes wait queues, holds and grants, and it asks no lock service. An exception
    may interrupt a caller at any instruction: that of a signal handler, or a cancellation. The cleanup after
    the interrupt is a function in `cleanups`, which asks none either, and which the next owner calls.
    """

    def __init__(self) -> None:
        #: Called if another thread has to run the cleanup. It takes no mutex.
        self.wake: Callable[[], None] = lambda: None
        self.after_fork()

    def after_fork(self) -> None:
        """Set the initial state, also in a forked child: the pending cleanup is the parent's."""
        self.mutex = signal_safety.mutex()
        #: Returns whether the running thread owns the mutex. Then a signal handler or a finaliser is calling.
        self.reentered = self.mutex._is_owned
        #: The functions to call, the oldest first.
        self.cleanups: deque[Callable[[], None]] = deque()

    def undo(self, error: BaseException, cleanup: Callable[[], None]) -> None:
        """Run *cleanup*, which may run twice, under the mutex, because of *error*.

        If this thread owns the mutex, because a signal handler has interrupted it, the next owner runs the
        cleanup; so it does if *error* is the GeneratorExit of garbage collection, which may come at any time.
        """
        self.cleanups.append(cleanup)
        if isinstance(error, GeneratorExit) or self.reentered():
            self.wake()
            return
        with self.mutex:
            self.catch_up()

    def catch_up(self) -> None:
        """Run the cleanup after interrupted callers. The caller owns the mutex."""
        while self.cleanups:
            # Keep the function in the queue until it is done, because it may be interrupted, too.
            cleanup = self.cleanups[0]
            cleanup()
            if self.cleanups and self.cleanups[0] is cleanup:
                self.cleanups.popleft()
