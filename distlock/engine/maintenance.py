"""The maintenance thread of a client, which does the work that no caller waits for.

It renews holds, cancels requests that no caller wants any more, reads replies that no caller waits for,
removes waiters whose event loops stand still, publishes the status of the process, and logs refusals. Each of
these is a `Job`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from distlock.engine.critical_section import CriticalSection
from distlock.engine.sans_io import Commands, ThreadParker, run

logger = logging.getLogger("distlock")

#: Seconds until an idle thread ends. To start a thread costs more than a lock.
LINGER = 10.0
#: Seconds from one look of an idle thread for work to the next. To wake the thread for each lock would cost
#: more than the lock, and most holds end sooner.
NAP = 0.5


class Job(Protocol):
    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Do what is due. *until* returns when this has to be over, because a hold is to be renewed then."""

    def due(self, now: float) -> float:
        """Return when there is something to do; ``inf`` if there is nothing. The caller owns the mutex."""

    def is_idle(self) -> bool:
        """Return whether the thread may end. The caller owns the mutex."""


class MaintenanceThread:
    """A thread that starts when there is work, such as the first hold, and ends after a while without work.

    Args:
        begun: called each time the thread was started.
        threads: False: no thread is started. Then tests call `tick`.
    """

    def __init__(
        self,
        section: CriticalSection,
        now: Callable[[], float],
        begun: Callable[[], None],
        threads: bool,
    ) -> None:
        self._section = section
        self._now = now
        self._begun = begun
        self._threads = threads
        self.jobs: Sequence[Job] = ()
        #: Returns when the next hold has to be renewed. Its caller owns the mutex.
        self.next_renewal: Callable[[], float] = lambda: math.inf
        self.start_anew()

    def start_anew(self) -> None:
        """Set the state of a client without a thread: at first, after `stop`, and in a forked child."""
        self.thread: threading.Thread | None = None
        self.parker = ThreadParker()
        #: When the next tick comes at the latest.
        self.wakes_at = math.inf
        self._stopping = False
        #: Whether the latest start failed. At a limit of threads, each lock tries to start one.
        self._failed_to_start = False

    def wake(self) -> None:
        """Wake the thread, if there is one. Takes no mutex."""
        self.parker.wake()

    def wake_before(self, due: float) -> None:
        """Make sure that the next tick comes at *due* or before. Start the thread if there is none.

        The caller owns the mutex.
        """
        if (due >= self.wakes_at and self.thread is not None) or self._stopping:
            return
        if self._threads and self.thread is None:
            thread = threading.Thread(target=self._serve, name="distlock-maintenance", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # Until a later call of this starts the thread, locks end with their leases.
                if not self._failed_to_start:
                    logger.error("No maintenance thread could be started, and no lock is renewed: %s", error)
                self._failed_to_start = True
            else:
                self.thread, self._failed_to_start = thread, False
                self._begun()
        else:
            self.wakes_at = due
            self.parker.wake()

    def tick(self) -> Commands[float]:
        """Do what is due. Return the seconds until the next tick; ``inf`` if there is nothing to do."""
        for job in self.jobs:
            yield from job.tick(self.next_renewal)
        with self._section.mutex:
            now = self._now()
            dues = [job.due(now) for job in self.jobs]
            if now < self.wakes_at:
                # `wake_before` has promised a tick by then.
                dues.append(self.wakes_at)
            self.wakes_at = min(dues)
            return max(0.0, self.wakes_at - now)

    def is_idle(self) -> bool:
        """Return whether there is nothing to do. The caller owns the mutex."""
        return all(job.is_idle() for job in self.jobs)

    def stop(self) -> None:
        """End the thread, and wait for it unless this is that thread. No other starts until `start_anew`."""
        with self._section.mutex:
            self._stopping = True
            thread = self.thread
            self.parker.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        try:
            self._tick_again_and_again()
        finally:
            # Whatever ended this thread, let the next hold start another one.
            with self._section.mutex:
                if self.thread is threading.current_thread():
                    self.thread = None

    def _tick_again_and_again(self) -> None:
        parker, idle_until = self.parker, math.inf
        while not self._stopping:
            try:
                pause = run(self.tick())
            except Exception:
                logger.exception("The maintenance thread met an unexpected error. It goes on renewing locks.")
                pause = 1.0
            if pause != math.inf:
                idle_until = math.inf
                parker.wait(pause)
                continue
            with self._section.mutex:
                now = self._now()
                idle_until = min(idle_until, now + LINGER)
                self.wakes_at = now + NAP
                if now >= idle_until and self.is_idle():
                    self.thread = None
                    return
            parker.wait(NAP)
