"""The callers of one process that wait for the latches of one client.

Each caller sleeps at its parker. One thread looks at the latches for all callers: when a waiter comes, when
the lock service notifies the client, and every `POLL` seconds, in case a notification was missed. The thread
ends when nobody waits any more.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from types import CodeType

from distlock import clock, signal_safety
from distlock.backends.inspectable import MOMENT, StatusRow
from distlock.backends.latches import Latches, LatchState
from distlock.engine.process import forget_in_children
from distlock.engine.sans_io import Commands, Park, Parker, ThreadParker
from distlock.errors import BackendUnavailable
from distlock.terms import shown_where

logger = logging.getLogger("distlock")

#: Seconds between two looks at a latch without a notification.
POLL = 2.0
#: Seconds until the next look if the lock service did not answer.
AGAIN = 0.25
#: How much longer than its time-out a waiter waits for the first look at its latch, seconds.
REPLY_GRACE = 0.25
#: How long the thread stays without waiters, seconds.
LINGER = 1.0
#: A waiter that has not left this many seconds after its time-out is forgotten: its event loop is blocked.
STALLED = 2.0

_CLOSED = "The client was closed meanwhile, and waits for no latch. It may be used again."


class LatchGone(Exception):
    """The latch does not exist, or was gone before it opened: deleted, or its ttl was over."""


class _Waiter:
    __slots__ = ("came", "life", "outcome", "parker", "until", "was_looked_at", "where")

    def __init__(self, parker: Parker, until: float, where: str | CodeType | None) -> None:
        self.parker = parker
        #: When it came, on `distlock.clock.now`.
        self.came = clock.now()
        #: The code that waits: see `distlock.terms.Terms`.
        self.where = where
        #: When its time-out is over, on `distlock.clock.now`.
        self.until = until
        #: Whether the latch was looked at since this waiter came.
        self.was_looked_at = False
        #: The `LatchState.life` of the latch, as first seen. A later latch of the same name has another one.
        self.life: str | None = None
        #: The open latch, or the error for a latch that will not open. None: it still waits.
        self.outcome: LatchState | Exception | None = None

    def end(self, outcome: LatchState | Exception) -> None:
        self.outcome = outcome
        self.parker.wake()


class _Watched:
    """One latch and its waiters."""

    __slots__ = ("due", "ends", "trouble", "waiters")

    def __init__(self) -> None:
        self.waiters: set[_Waiter] = set()
        #: When to look at it next; ``inf`` while a look is under way.
        self.due = -math.inf
        #: When its lifetime ends, as far as is known.
        self.ends = -math.inf
        #: Why the last look failed; None: it did not.
        self.trouble: BackendUnavailable | None = None


class LatchWaits:
    """The waiters of one client, and the thread that looks at their latches.

    The backend calls `notified` and `missed_notifications` from any thread.
    """

    def __init__(self, latches: Latches, publish_soon: Callable[[], None] = lambda: None) -> None:
        """*latches*: the backend. *publish_soon*: called after each look while there are `rows`."""
        self.latches = latches
        self._publish_soon = publish_soon
        self.after_fork()
        forget_in_children(self)

    def after_fork(self) -> None:
        """Forget all waiters in a forked child: they are the parent's."""
        self._mutex = signal_safety.mutex()
        self._watched: dict[str, _Watched] = {}
        #: The keys notified since the last look. None stands for all keys: notifications were missed.
        self._hints: deque[str | None] = deque()
        self._called = ThreadParker()
        self._thread: threading.Thread | None = None

    def notified(self, key: str) -> None:
        """Look at *key* soon."""
        self._hints.append(key)
        self._called.wake()

    def missed_notifications(self) -> None:
        """Look at every latch soon."""
        self._hints.append(None)
        self._called.wake()

    def rows(self, at_epoch: float) -> list[StatusRow]:
        """Return a row to publish for each latch that a caller has waited for at least `MOMENT` seconds.

        *at_epoch*: added to `clock.now()`, it gives seconds since 1970.
        """
        now, rows = clock.now(), []
        for key, watched in self._watched.copy().items():
            eldest = min(watched.waiters.copy(), key=lambda one: one.came, default=None)
            if eldest is not None and now - eldest.came >= MOMENT:
                waiting, since = len(watched.waiters), round(eldest.came + at_epoch, 1)
                where = shown_where(eldest.where)
                rows.append(StatusRow(key, waiting=waiting, waits_at=where, waiting_since=since))
        return rows

    def wait(
        self, key: str, parker: Parker, until: float, where: str | CodeType | None = None
    ) -> Commands[LatchState | None]:
        """Wait until the latch *key* is open. Return its state, or None if it has not opened by *until*.

        *where*: the code that waits. Raises `LatchGone`; `BackendUnavailable` if the state is unknown.
        """
        waiter = _Waiter(parker, until, where)
        try:
            watched = self._enter(key, waiter)
            while waiter.outcome is None:
                left = until - clock.now()
                if left <= 0 and not waiter.was_looked_at:
                    left += REPLY_GRACE
                if left <= 0:
                    break
                yield Park(parker, left)
        finally:
            # Do not take the mutex: this may run as a finaliser in the thread that owns the mutex.
            if (entered := self._watched.get(key)) is not None:
                entered.waiters.discard(waiter)
        # The outcome is read last and once: the thread that looks sets it before it notes its look.
        trouble, was_looked_at, outcome = watched.trouble, waiter.was_looked_at, waiter.outcome
        if isinstance(outcome, Exception):
            # Raise a copy, because other waiters raise the same error, each with its own traceback.
            raise copy.copy(outcome) from outcome.__cause__
        if outcome is None and (trouble is not None or not was_looked_at):
            raise BackendUnavailable(str(trouble or "The lock service has not answered in time."))
        return outcome

    def close(self) -> None:
        """End all waits with `BackendUnavailable`, and wait for the thread, which may be in a backend call.

        If this thread has the mutex or is in a backend call itself, return at once: a new thread does it.
        """
        if self._mutex._is_owned() or signal_safety.is_calling():
            threading.Thread(target=self.close, name="distlock-close").start()
            return
        with self._mutex:
            for watched in self._watched.values():
                for waiter in list(watched.waiters):
                    waiter.end(BackendUnavailable(_CLOSED))
            self._watched.clear()
            thread, self._thread = self._thread, None
        self._called.wake()
        if thread is not None and thread.is_alive():
            thread.join()

    def _enter(self, key: str, waiter: _Waiter) -> _Watched:
        if self._mutex._is_owned():
            raise signal_safety.refusal()
        with self._mutex:
            watched = self._watched.setdefault(key, _Watched())
            if self._thread is None or not self._thread.is_alive():
                self._start()
            watched.waiters.add(waiter)
            # Each new waiter needs a look, because for a latch that is open already, no notification follows.
            watched.due = -math.inf
        self._called.wake()
        return watched

    def _start(self) -> None:
        self._thread = signal_safety.backend_thread("distlock-latches", self._run)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            raise signal_safety.no_thread("A latch cannot be waited for", error) from error

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._mutex:
                if self._thread is not threading.current_thread():
                    return
                self._forget_who_left()
                due, pause = self._due()
            if due:
                self._look(due)
                self._publish_rows()
                continue
            self._called.wait(min(pause, LINGER) if self._watched else LINGER)
            with self._mutex:
                if self._thread is threading.current_thread() and not (self._watched or self._hints):
                    # The next waiter starts another thread.
                    self._thread = None
                    return

    def _publish_rows(self) -> None:
        if not self.rows(0.0):
            return
        try:
            self._publish_soon()
        except Exception as error:
            # No thread could be started to publish the rows. That must not stop this thread.
            logger.debug("The waiters for latches are published later: %s", error)

    def _forget_who_left(self) -> None:
        now = clock.now()
        for key, watched in list(self._watched.items()):
            for waiter in list(watched.waiters):
                if now > waiter.until + STALLED or not waiter.parker.alive():
                    watched.waiters.discard(waiter)
            if not watched.waiters:
                del self._watched[key]

    def _due(self) -> tuple[dict[str, set[_Waiter]], float]:
        """Return the latches to look at now with their waiters, and the seconds until the next look."""
        while self._hints:
            hinted = self._hints.popleft()
            for key in [hinted] if hinted is not None else list(self._watched):
                if (found := self._watched.get(key)) is not None:
                    found.due = -math.inf
        now, due, pause = clock.now(), {}, math.inf
        for key, watched in self._watched.items():
            if watched.due <= now:
                watched.due = math.inf
                due[key] = watched.waiters.copy()
            pause = min(pause, watched.due - now)
        return due, pause

    def _look(self, due: dict[str, set[_Waiter]]) -> None:
        failure: Exception | None = None
        states: list[LatchState | None] = [None] * len(due)
        try:
            states = list(self.latches.look_at_latches(list(due), True))
        except Exception as error:
            failure = error
        with self._mutex:
            for (key, waiters), state in zip(due.items(), states, strict=True):
                # `close` may have removed the latch.
                watched = self._watched.get(key, _Watched())
                if failure is None:
                    _apply(watched, waiters, state)
                else:
                    _apply_failure(watched, waiters, failure)


def _apply(watched: _Watched, waiters: set[_Waiter], state: LatchState | None) -> None:
    """End the waits for which *state* is the outcome, and plan the next look.

    An open latch ends the waits with *state*. If there is no latch (None), or another one than a waiter saw
    before, `LatchGone` ends the wait. No look is planned for None. *waiters* came before *state* was read.
    """
    watched.trouble = None
    for waiter in waiters:
        if state is not None:
            waiter.life = waiter.life or state.life
        if state is None or state.life != waiter.life:
            waiter.outcome = LatchGone()
        elif not state.left:
            waiter.outcome = state
        # Set this after the outcome: a waiter whose time is over goes on as soon as it sees it.
        waiter.was_looked_at = True
        if waiter.outcome is not None:
            watched.waiters.discard(waiter)
        if waiter.outcome is not None or clock.now() >= waiter.until:
            waiter.parker.wake()
    if state is not None:
        watched.ends = clock.now() + state.ttl
        watched.due = min(watched.due, clock.now() + min(POLL, max(state.ttl, 0.01)))


def _apply_failure(watched: _Watched, waiters: set[_Waiter], failure: Exception) -> None:
    """Plan another look after *failure*, or end the waits of *waiters* with it.

    While the latch is known to live, `BackendUnavailable` ends no wait: the lock service may be back soon.
    Before the first successful look it ends the waits, as it ends the acquisition of a lock.
    """
    now = clock.now()
    if isinstance(failure, BackendUnavailable):
        watched.trouble = failure
        watched.due = min(watched.due, now + AGAIN)
        if now < watched.ends:
            return
    for waiter in waiters:
        waiter.end(failure)
        watched.waiters.discard(waiter)
