"""The subscription is read by a thread that waits for a lock, if there is one; else by the listener's.

A push that is read by the thread it is for wakes one thread, not two. The others sleep at their gates, and
who reads wakes them: https://en.wikipedia.org/wiki/Leader%E2%80%93follower_pattern
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from distlock import clock
from distlock.backends.flag import Flag
from distlock.backends.optional import Sleep
from distlock.backends.redis.connection import Connection, ReplyError

#: Seconds that the listener's thread leaves the reading to those that wait; once more if any of them did.
NAP = 0.2
#: So long may the server be silent before somebody asks whether it is still there, seconds.
QUIET = 5.0
#: What a connection can fail with.
FAILURES = (OSError, ReplyError, ValueError, RuntimeError)


class Ears:
    """Of one subscription. *take_in*: reads one message, and tells whom it is for."""

    def __init__(self, take_in: Callable[[Connection], None]) -> None:
        self._take_in = take_in
        #: The thread that has it reads. At first that is the listener's.
        self._turn = threading.Lock()
        self._turn.acquire()
        #: Where the listener's thread naps.
        self._called = threading.Lock()
        self._called.acquire()
        self._sleepers: set[Sleep] = set()
        #: Whether one that waits has read during the nap, and when the last one ends at the latest.
        self._was_led = False
        self._led_until = 0.0
        #: So long a task waits, at the latest: it can't read.
        self._tasks_until = 0.0
        self.connection: Connection | None = None
        #: What one that waits has met in it; "": nothing. Its words alone: it would keep what its thread had.
        self.failure = ""

    def wait(self, parker: Sleep, timeout: float) -> None:
        """Sleep at *parker* until it is woken, for *timeout* seconds at most. Read if nobody else does."""
        ends, turn = clock.now() + timeout, self._turn
        try:
            # Noted before the look, so that one who reads, and leaves, sees us.
            self._sleepers.add(parker)
            if not turn.locked():
                # Before it is taken, and by nobody who can't have it: see leave_it_to_others.
                self._led_until = max(self._led_until, ends)
                if turn.acquire(blocking=False):
                    try:
                        parker.begin()
                        self._read_for(parker, ends)
                    finally:
                        turn.release()
                        if len(self._sleepers) > 1 or clock.now() < self._tasks_until:
                            self.call()
                    if parker.pass_through():
                        return
            parker.wait(max(0.0, ends - clock.now()))
        finally:
            self._sleepers.discard(parker)

    def _read_for(self, parker: Sleep, ends: float) -> None:
        self._was_led = True
        connection = self.connection
        if connection is None:
            return
        try:
            while not parker.is_open() and (now := clock.now()) < ends:
                if connection.heard(min(ends, now + QUIET)):
                    self._take_in(connection)
                elif now + QUIET <= ends:
                    # Too quiet: the listener's thread asks whether the server is there.
                    self.call()
                    return
        except BaseException as error:
            self.failure = str(error)
            # An interrupt may have come in the middle of a message.
            connection.disconnect()
            self.call()
            if not isinstance(error, FAILURES):
                raise

    def stay_until(self, then: float) -> None:
        """A task waits, at the latest until *then*: the listener's thread does not nap."""
        naps = clock.now() >= self._tasks_until
        self._tasks_until = max(self._tasks_until, then)
        if naps:
            self.call()

    def call(self) -> None:
        """The listener's thread shall read, or look why nobody can."""
        try:
            self._called.release()
        except RuntimeError:
            pass  # It is called already.

    def leave_it_to_others(self, closing: Flag) -> None:
        """For the listener's thread, while it has the turn: returns when it has to read again."""
        woken = tuple(self._sleepers)
        # Where no thread was waiting the message was for a task, and no task will read the next one.
        if not woken or not all(parker.is_open() for parker in woken) or clock.now() < self._tasks_until:
            return
        self._turn.release()
        while not closing.is_set():
            called = self._called.acquire(timeout=NAP)
            if clock.now() >= self._led_until + QUIET and self._turn.locked():
                # An interrupt between two instructions has kept it.
                self._turn = threading.Lock()
            if (called or not self._was_led) and self._turn.acquire(blocking=False):
                return
            self._was_led = False
