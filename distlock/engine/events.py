"""Notifications from the lock service, and the user's callbacks.

`EngineSink.notified` is only a hint, which may be lost: the notified caller asks the lock service.

Promise G7 (docs/explanation/promises.md): a loss is found before the lease ends on the server, by a
notification or by the maintenance thread. First the hold is marked as lost. Then the loss is logged, and the
callbacks are called.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import NameGrant
from distlock.engine.renewal import LossHandler
from distlock.engine.wait_queue import HandedOff
from distlock.engine.wait_queues import WaitQueues
from distlock.grants.grant import Fence, Grant, OnReleaseRequested

logger = logging.getLogger("distlock")

#: Called with each lost grant and the reason, mostly in a thread of its own.
OnLost = Callable[[Grant, str], None]
#: Called with each grant whose fence was raised, and the fence that it had before. It should return soon: it
#: runs in the thread of a caller, under the lock.
OnLifted = Callable[[Grant, Fence], None]


class Callbacks:
    """The callbacks of one client.

    They may take long. So none runs in the thread that renews holds, unless no other thread can be started.

    Args:
        threads: False: all callbacks run in the calling thread, for tests.
    """

    def __init__(
        self,
        on_lost: OnLost | None,
        on_lifted: OnLifted | None,
        on_release_requested: OnReleaseRequested | None,
        threads: bool,
    ) -> None:
        self._on_lost = on_lost
        self._on_lifted = on_lifted
        self._on_release_requested = on_release_requested
        self._threads = threads
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the losses that are not reported yet. In a forked child they are the parent's."""
        self._mutex = threading.RLock()
        self._losses: deque[tuple[Grant, str]] = deque()
        self._thread: threading.Thread | None = None

    # -- losses ----------------------------------------------------------------------------------

    def lost(self, grant: NameGrant, why: str) -> None:
        """Log the loss of *grant*, and call `on_lost` in this thread."""
        _log_loss(grant, why)
        self._call_on_lost(grant, why)

    def lost_off_thread(self, grant: NameGrant, why: str) -> None:
        """Log the loss of *grant*, and have `on_lost` called in another thread, in the order of the losses.

        If no thread can be started, call it in this thread.
        """
        _log_loss(grant, why)
        if self._on_lost is None:
            return
        if not self._threads:
            self._call_on_lost(grant, why)
            return
        with self._mutex:
            self._losses.append((grant, why))
            if self._thread is not None and self._thread.is_alive():
                return
            self._thread = threading.Thread(target=self._serve, name="distlock-on-lost", daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError as error:
                logger.warning("on_lost delays renewals, for no thread could be started for it: %s", error)
        self._serve()

    def join(self) -> None:
        """Wait until `on_lost` was called for all losses. Return at once if `on_lost` itself calls this."""
        with self._mutex:
            thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._mutex:
                if not self._losses:
                    self._thread = None
                    return
                grant, why = self._losses.popleft()
            self._call_on_lost(grant, why)

    def _call_on_lost(self, grant: Grant, why: str) -> None:
        if self._on_lost is None:
            return
        try:
            self._on_lost(grant, why)
        except (Exception, SystemExit):
            # Catch an exit, too, because the later losses have to be reported.
            logger.exception("on_lost failed for the lock %s.", ", ".join(map(repr, grant.names)))

    # -- fences and requests to release ----------------------------------------------------------

    def fence_raised(self, grant: NameGrant, was: Fence, seen: int) -> None:
        """Log that the fence of *grant* was raised above *seen*, and call `on_lifted`."""
        logger.error(
            "The fence %d:%d of the lock %r was lifted to %d:%d, because a database has seen %d: has the "
            "lock service lost its data, or was its clock set back?",
            *was,
            grant.name,
            *grant.fence,
            seen,
        )
        if self._on_lifted is not None:
            try:
                self._on_lifted(grant, was)
            except Exception:
                logger.exception("on_lifted failed for the lock %r.", grant.name)

    def release_requested(self, grant: NameGrant) -> None:
        """Log that the release of *grant* is requested, and have the callbacks called in another thread."""
        logger.info("The %s is wanted back.", grant.shown())
        own = grant._options.on_release_requested
        callbacks = [one for one in (own, self._on_release_requested) if one is not None]
        if not callbacks:
            return
        if not self._threads:
            _call_on_release_requested(callbacks, grant)
            return
        # The callbacks may hang, or wait for this very lock.
        thread = threading.Thread(
            target=_call_on_release_requested,
            args=(callbacks, grant),
            name="distlock-release-requested",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            # The holder still sees `Grant.release_requested`.
            logger.warning("Nobody was told that %r is wanted back: %s", grant.name, error)


def _log_loss(grant: NameGrant, why: str) -> None:
    logger.error("The %s was lost: %s.", grant.shown(), why)


def _call_on_release_requested(callbacks: Sequence[Callable[[Any], object]], grant: Grant) -> None:
    for one in callbacks:
        try:
            one(grant)
        except (Exception, SystemExit):
            logger.exception(
                "on_release_requested failed for the lock %s.", ", ".join(map(repr, grant.names))
            )


class LatchListener(Protocol):
    """What is notified for the callers that wait for latches: see `distlock.locks.latch_waits`."""

    def notified(self, key: str) -> None: ...
    def missed_notifications(self) -> None: ...


class EngineSink:
    """See `distlock.backends.base.Sink`."""

    def __init__(
        self,
        section: CriticalSection,
        queues: WaitQueues,
        hold_calls: LossHandler,
        callbacks: Callbacks,
        on_reconnected: Callable[[], None],
    ) -> None:
        self._section = section
        self._queues = queues
        self._hold_calls = hold_calls
        self._callbacks = callbacks
        self.reconnected = on_reconnected
        #: None: no caller has waited for a latch yet.
        self.latch_waits: LatchListener | None = None

    def notified(self, key: str) -> None:
        with self._section.mutex:
            queue = self._queues.by_key.get(key)
            if queue is not None:
                queue.wake_leader()
        if queue is None and self.latch_waits is not None:
            self.latch_waits.notified(key)

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        with self._section.mutex:
            queue = self._queues.by_key.get(key)
            if queue is not None:
                queue.handed_off = HandedOff(token, number, sent)
                queue.wake_leader()

    def lost(self, key: str, token: str) -> None:
        with self._section.mutex:
            queue = self._queues.by_key.get(key)
            hold = queue.hold_of(token) if queue is not None else None
        if hold is not None:
            self._hold_calls.lose(hold, "its lock service said so", cancel=False)

    def release_requested(self, key: str, token: str) -> None:
        with self._section.mutex:
            queue = self._queues.by_key.get(key)
            hold = None if queue is None else queue.hold_of(token)
            # If the hold is not known here yet, its next renewal repeats the request.
            if hold is None or hold.release_requested or not (grants := hold.grants):
                return
            # From now on no other caller here gets this hold. The request does not concern later holds.
            hold.release_requested = True
        for grant in grants:
            self._callbacks.release_requested(grant)

    def missed_notifications(self) -> None:
        with self._section.mutex:
            for queue in self._queues.by_key.values():
                queue.wake_leader()
            self._queues.renewer.confirm_all()
        if self.latch_waits is not None:
            self.latch_waits.missed_notifications()
