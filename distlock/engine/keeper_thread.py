"""The keeper's thread: it starts with the first hold, and ends when there was nothing to keep for a while."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Protocol

from distlock.engine.critical_section import CriticalSection
from distlock.engine.steps import Steps, ThreadGate, run

logger = logging.getLogger("distlock")

#: Seconds that an idle keeper stays: starting a thread costs more than a lock, an idle one wakes up seldom.
LINGER = 10.0


class Rounds(Protocol):
    """What the thread plays."""

    def tick(self) -> Steps[float]:
        """One round. Returns the seconds until the next one; ``inf`` if there is nothing to keep."""

    def is_idle(self) -> bool:
        """Under the mutex: whether there still is nothing to keep."""


class KeeperThread:
    """*begun*: called when the thread is started. *threads*: False where somebody else plays the rounds."""

    def __init__(
        self,
        rounds: Rounds,
        section: CriticalSection,
        now: Callable[[], float],
        begun: Callable[[], None],
        threads: bool,
    ) -> None:
        self._rounds = rounds
        self._section = section
        self._now = now
        self._begun = begun
        self._threads = threads
        self.start_anew()

    def start_anew(self) -> None:
        """At first, after `stop`, and in a forked child: there is no thread."""
        self._thread: threading.Thread | None = None
        self.gate = ThreadGate()
        #: When the next round is.
        self.wakes_at = math.inf
        self._stopping = False

    def wake(self) -> None:
        """There is something to do, if there is a thread to do it. Takes no lock."""
        self.gate.wake()

    def wake_before(self, due: float) -> None:
        """Under the mutex: there is something to do at *due*, which is worth a thread."""
        if self._stopping:
            return
        if self._threads and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._serve, name="distlock-keeper", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # Without a keeper a lock ends with its lease, and the next one tries to start it again.
                logger.error("The keeper could not be started, locks are not renewed: %s", error)
            else:
                self._thread = thread
                self._begun()
        elif due < self.wakes_at:
            self.gate.wake()

    def stop(self) -> None:
        """End the thread. There is none until `start_anew`."""
        with self._section.mutex:
            self._stopping = True
            thread = self._thread
            self.gate.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        gate = self.gate
        while not self._stopping:
            try:
                pause = run(self._rounds.tick())
            except Exception:
                logger.exception("The keeper met an unexpected error. It goes on renewing locks.")
                pause = 1.0
            if pause != math.inf:
                gate.wait(pause)
                continue
            with self._section.mutex:
                self.wakes_at = self._now() + LINGER
            gate.wait(LINGER)
            with self._section.mutex:
                if self._rounds.is_idle():
                    self._thread = None
                    return
