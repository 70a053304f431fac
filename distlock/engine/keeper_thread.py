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

#: Seconds that an idle keeper stays: starting a thread costs more than a lock.
LINGER = 10.0
#: It looks after so many seconds whether there is something to keep. To wake it for each lock would cost more
#: than the lock: few want a look before, and most have ended then.
NAP = 0.5


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
        if due >= self.wakes_at and self._thread is not None:
            return
        if self._stopping:
            return
        if self._threads and self._thread is None:
            thread = threading.Thread(target=self._serve, name="distlock-keeper", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # Without a keeper a lock ends with its lease, and the next one tries to start it again.
                logger.error("The keeper could not be started, locks are not renewed: %s", error)
            else:
                self._thread = thread
                self._begun()
        else:
            self.wakes_at = due
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
        try:
            self._play()
        finally:
            # Whatever it has died of, the next one is started.
            with self._section.mutex:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _play(self) -> None:
        gate, idle_until = self.gate, math.inf
        while not self._stopping:
            try:
                pause = run(self._rounds.tick())
            except Exception:
                logger.exception("The keeper met an unexpected error. It goes on renewing locks.")
                pause = 1.0
            if pause != math.inf:
                idle_until = math.inf
                gate.wait(pause)
                continue
            with self._section.mutex:
                now = self._now()
                idle_until = min(idle_until, now + LINGER)
                self.wakes_at = now + NAP
                if now >= idle_until and self._rounds.is_idle():
                    self._thread = None
                    return
            gate.wait(NAP)
