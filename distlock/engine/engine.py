"""The engine of a client, between its callers and the lock service: how a caller gets a grant.

`Engine.acquire` and `HoldCalls.release` are generators of commands, which `distlock.engine.sans_io` carries
out. Between two yields they change only the caller's own waiter, or state under the one mutex. So callers can
interleave only at the yields, and the tests play these interleavings.

Promise G3 (docs/explanation/promises.md): every wait has an end, unless the caller asked for no limit. If a
holder hangs, the renewer ends its hold.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from distlock import clock, signal_safety
from distlock.backends.base import Acquired, Backend, Busy, LockRequest, Queued
from distlock.backends.inspectable import StatusRow, inspectable
from distlock.backends.protocols import Hears, Posts, SeesEnd
from distlock.engine.admission import Admission, DifferingLimits, Refusals, log_refusals
from distlock.engine.critical_section import CriticalSection
from distlock.engine.deferred_work import SOON, Cancellations, LateClose, ReplyReader
from distlock.engine.events import Callbacks, EngineSink, OnLifted, OnLost
from distlock.engine.hold import SPAN, Hold, NameGrant, Waiter
from distlock.engine.hold_calls import HoldCalls
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.process import end_at_exit, forget_in_children, may_run, prepare_for_forks
from distlock.engine.recovery import Recovery
from distlock.engine.renewal import Renewer
from distlock.engine.sans_io import Call, Commands, Park, Parker, run
from distlock.engine.status import Inspection, StatusPublisher, row_of
from distlock.engine.wait_queue import WaitQueue
from distlock.engine.wait_queues import StalledWaiters, WaitQueues
from distlock.errors import BackendUnavailable, TooManyWaiters
from distlock.grants.grant import OnReleaseRequested
from distlock.owner import Owner
from distlock.signal_safety import is_parked, refusal
from distlock.terms import EXCLUSIVE, PERMIT, READ, Terms

#: How many seconds longer than its caller's time-out a call to the lock service may take: to read a reply
#: that is under way, or to leave the queue of the lock service.
REPLY_GRACE = 0.25
#: How many seconds a caller with a time-out of 0 waits for the answer to the leader's request. Without this
#: limit it might wait for long, because the event loop of the leader may stand still.
OTHER_REQUEST_WAIT = 1.0

CLOSED = "The client was closed meanwhile, and holds no locks. It may be used again."


class Engine:
    def __init__(
        self,
        backend: Backend,
        *,
        ttl: float,
        max_hold: float,
        max_waiters: int | None,
        max_waiters_total: int | None,
        epoch: int,
        turn: float | None = None,
        on_lost: OnLost | None = None,
        on_lifted: OnLifted | None = None,
        on_release_requested: OnReleaseRequested | None = None,
        on_reconnected: Callable[[], None] = lambda: None,
        now: Callable[[], float] = clock.now,
        threads: bool = True,
    ) -> None:
        self.backend = backend
        #: The options of callers that give none.
        self.options = Terms(ttl, max_hold)
        self.epoch = epoch
        self.now = now
        self.section = section = CriticalSection()
        self.maintenance = thread = MaintenanceThread(section, now, partial(end_at_exit, self), threads)
        section.wake = thread.wake
        self.cancellations = Cancellations(section, backend, now, thread)
        self.late_close = LateClose(section, backend, self.cancellations)
        self.replies = ReplyReader(section, backend, now, thread)
        self.callbacks = Callbacks(on_lost, on_lifted, on_release_requested, threads)
        self.recovery = Recovery(section, backend, now, thread, lambda: self.queues.waiting > 0)
        self.hold_calls = HoldCalls(
            section, backend, now, self.cancellations, self.replies, self.callbacks, self.recovery
        )
        self.renewer = Renewer(section, backend, now, thread, self.hold_calls)
        thread.next_renewal = self.renewer.next
        self.queues = WaitQueues(
            self.hold_calls,
            Admission(max_waiters, max_waiters_total),
            self.renewer,
            self.cancellations,
            epoch,
            backend.has_ended if isinstance(backend, SeesEnd) else None,
        )
        self.queues.turn = turn
        self._stalled = StalledWaiters(section, now)
        self.status = StatusPublisher(section, backend, now, self.queues)
        self.inspection = Inspection(section, backend)
        self._refusals = Refusals(section, now, thread)
        thread.jobs = (
            self._stalled,
            self.renewer,
            self.replies,
            self.cancellations,
            self.late_close,
            self.status,
            self._refusals,
            self.recovery,
        )
        self.sink = EngineSink(section, self.queues, self.hold_calls, self.callbacks, on_reconnected)
        self._inspectable = inspectable(backend)
        self._wait = backend.wait if isinstance(backend, Hears) else None
        self._window = getattr(backend, "window", None)
        self._limits = DifferingLimits()
        #: While the client is being closed, the reason why callers are refused; else None.
        self._closed: str | None = None
        backend.open(self.sink)
        forget_in_children(self)
        prepare_for_forks(self)

    # -- a caller --------------------------------------------------------------------------------

    def acquire(
        self, key: str, name: str, parker: Parker, timeout: float, options: Terms
    ) -> Commands[NameGrant | None]:
        """Acquire *key*, within *timeout* seconds (0: ask once). Return the grant; None if *key* stays taken.

        Raises:
            BackendUnavailable: the lock service does not answer, or the client is being closed.
            TooManyWaiters: the caller would most likely wait in vain, or a limit is reached.
            ConfigurationError: the caller reads *key* and wants to write it.
            Reentered: a signal handler or a finaliser calls, inside of distlock.
        """
        if self.section.reentered():
            if key in self.queues.by_key and not timeout > 0:
                return None
            raise refusal()
        asked_at = self.now()
        # A caller with a time-out of 0 makes one call, whose time the backend bounds.
        until = asked_at + timeout + REPLY_GRACE if timeout > 0 else math.inf
        asked = False
        try:
            entered = self._enter(key, name, parker, timeout, options, asked_at)
            if entered is None:
                return None
            queue, waiter = entered
            # The leader's request sets the grant (`WaitQueue.grant_leader`), and so does a local hand-off.
            while waiter.grant is None:
                if waiter.failure is not None:
                    raise BackendUnavailable(waiter.failure)
                pause = waiter.deadline - self.now()
                if pause <= 0 and (asked or timeout > 0):
                    yield from self._withdraw(queue, waiter, until)
                    break
                if waiter.leads:
                    if queue.handed_off is not None and self._begin_on_push(queue):
                        break
                    answer = yield from self._request(queue, waiter, until)
                    asked = True
                    if isinstance(answer, Acquired):
                        continue
                    if not isinstance(answer, Queued):
                        break
                    pause = min(pause, answer.poll)
                elif waiter.asks_once:
                    pause += OTHER_REQUEST_WAIT
                    if waiter.removed_by_others:
                        break
                    if pause <= 0:
                        yield from self._withdraw(queue, waiter, until)
                        break
                self._note_wait(queue, waiter)
                yield Park(parker, pause, self._wait if waiter.leads else None)
        except TooManyWaiters:
            raise
        except BaseException as error:
            self.abandon([key], parker, error)
            raise
        if not (waiter.waited or parker.may_stall):
            return waiter.grant
        return (yield from self._granted_late(queue, waiter, until))

    def _enter(
        self, key: str, name: str, parker: Parker, timeout: float, options: Terms, now: float
    ) -> tuple[WaitQueue, Waiter] | None:
        """Let a caller join a reader's hold, or the queue of *key*. Return the queue and the caller's waiter.

        Return None if the caller asks once, and other callers of this process have the lock or come first.
        """
        section = self.section
        with section.mutex:
            if section.cleanups:
                section.catch_up()
            if self._closed is not None or self.late_close.closing:
                raise BackendUnavailable(CLOSED)
            self.late_close.wanted = False
            if options.mode == READ and (queue := self.queues.by_key.get(key)) is not None:
                reader = queue.join_readers(parker, timeout, options, now)
                if reader is not None:
                    return queue, reader
            try:
                entered = self.queues.enter(key, name, parker, timeout, options, now)
            except TooManyWaiters as refused:
                self._refusals.note(refused)
                raise
            if entered is not None and parker.may_stall and timeout != math.inf:
                self.maintenance.wake_before(self._stalled.watch(*entered))
            return entered

    def _note_wait(self, queue: WaitQueue, waiter: Waiter) -> None:
        """Note that *waiter* is about to sleep. From a leader's second sleep on, have the status published.

        Raises `Reentered` if *waiter* would wait for the thread that it has interrupted.
        """
        if not waiter.waited:
            if is_parked():
                # A signal handler must not wait behind the thread that it has interrupted: it would for ever.
                with self.section.mutex:
                    others = [one for one in queue.waiters if one is not waiter]
                    if any(one.owner == waiter.owner for one in others):
                        raise refusal()
            waiter.waited = True
            if waiter.options.fenced:
                # A neighbour may have died that has the lock.
                with self.section.mutex:
                    self.recovery.begin_looking()
        elif waiter.leads:
            self.publish_soon()

    def _granted_late(self, queue: WaitQueue, waiter: Waiter, until: float) -> Commands[NameGrant | None]:
        """Return the grant of *waiter*. If it was lost while the caller slept, wait for another grant.

        Return None if another caller or the maintenance thread removed *waiter*, or if its time is over.
        """
        if waiter.parker.may_stall:
            with self.section.mutex:
                self._stalled.answered(waiter)
                if waiter.removed_by_others:
                    return None
        grant, options = waiter.grant, waiter.options
        if not waiter.waited or grant is None or not grant.lost:
            return grant
        if options.seat is not None and options.seat.batch is not None:
            # The holder of the batch checks the lock before its COMMIT.
            return grant
        # For example, the process was stopped for longer than the lease.
        yield from self.hold_calls.release(grant, until)
        left = max(0.0, waiter.deadline - self.now())
        if not left:
            return None
        return (yield from self.acquire(queue.key, queue.name, waiter.parker, left, options))

    def abandon(self, keys: Iterable[str], parker: Parker, error: BaseException) -> None:
        """Remove the waiters and release the grants of the caller with *parker*, which *error* interrupted.

        Does no I/O: the maintenance thread asks the lock service.
        """
        for key in keys:
            self.section.undo(error, partial(self._abandon, key, parker, error))

    def _abandon(self, key: str, parker: Parker, error: BaseException) -> None:
        self._stalled.forget(parker)
        if (queue := self.queues.by_key.get(key)) is not None:
            queue.abandon(parker, error)

    # -- the leader of a queue -------------------------------------------------------------------

    def _begin_on_push(self, queue: WaitQueue) -> bool:
        """Grant the leader the hold that a push handed off. Return False if the leader has to ask first."""
        if self._window is None:
            return False
        with self.section.mutex:
            return queue.grant_handed_off(self._window)

    def _request(
        self, queue: WaitQueue, waiter: Waiter, until: float
    ) -> Commands[Acquired | Queued | Busy | None]:
        """Send the lock request of *queue*, or repeat it, and apply the answer.

        *until*: the moment at which the caller stops waiting for an answer.

        Returns:
            The answer. None if others removed *waiter* meanwhile, or if there was no answer to a repeated
            request until *until*: that is a time-out, because the lock service has answered before.

        Raises:
            BackendUnavailable: there was no answer.
        """
        request, options = queue.request, waiter.options
        if request is not None and (request.wait == waiter.asks_once or not _asks_for(request, options)):
            # The caller of *request* has left, and this caller needs another request.
            with self.section.mutex:
                queue.cancel_request()
            request = None
        told_to_wait = request is not None
        if request is None:
            # The token, a secret, begins with the name of the process if operators can inspect the locks.
            process = "" if self._inspectable is None else self._inspectable.process
            span = SPAN if options.mode == EXCLUSIVE else 1
            token, waits = process + os.urandom(16).hex(), not waiter.asks_once
            wish = options.mode, options.limit, options.permits
            request = queue.request = LockRequest(queue.key, token, options.ttl, span, waits, *wish)
        queue.queued = None
        request.prompt = not waiter.parker.may_stall
        sent = self.now()
        try:
            waiter.call = Call(self.backend.request, request, until=until)
            answer: Acquired | Queued | Busy = yield waiter.call
        except BackendUnavailable:
            if self.now() < until:
                raise
            # Only this caller's time is over. For the other waiters this is no outage.
            self._give_up_late(queue, waiter, request)
            if waiter.removed_by_others or (told_to_wait and waiter.failure is None):
                return None
            raise
        with self.section.mutex:
            if waiter.failure is not None:
                # The waiter was removed meanwhile, for example because the client was closed.
                self.cancellations.add(request)
            elif waiter.removed_by_others:
                self._cancel_unless_used(queue, request)
                return None
            elif isinstance(answer, Acquired):
                hold = Hold(queue, request, answer.number, sent, answer.ttl, options.max_hold)
                hold.others_wait = answer.followed
                queue.grant_leader(hold, self.now())
                if queue.busy and queue.waiters:
                    queue.refuse_nonblocking()
            else:
                self._apply_refusal(queue, waiter, request, answer, sent)
        if request.mode == PERMIT and isinstance(answer, Acquired):
            self._limits.compare(queue.name, request, answer)
        return answer

    def _give_up_late(self, queue: WaitQueue, waiter: Waiter, request: LockRequest) -> None:
        """Remove *waiter*, whose call got no answer in time, unless it was removed before."""
        with self.section.mutex:
            if waiter.failure is not None:
                self.cancellations.add(request)
            elif not waiter.removed_by_others:
                queue.give_up(waiter, self.now())

    def _apply_refusal(
        self, queue: WaitQueue, waiter: Waiter, request: LockRequest, answer: Queued | Busy, sent: float
    ) -> None:
        """Apply *answer*, which says that another process has the lock. The caller owns the mutex."""
        if isinstance(answer, Queued):
            queue.queued = request
            queue.refuse_nonblocking()
            if queue.handed_off is not None and queue.handed_off.sent < sent:
                # The push is older than this answer, so the hand-off is over.
                queue.handed_off = None
            return
        queue.request = None
        if request.unanswered:
            self.cancellations.add(request)
        queue.leave(waiter)
        # The answer also refuses the waiters that want the same and came before the request was sent.
        queue.refuse_nonblocking(lambda one: one.came < sent and _asks_for(request, one.options))
        queue.elect()

    def _withdraw(self, queue: WaitQueue, waiter: Waiter, until: float) -> Commands[None]:
        """Remove *waiter*, whose time is over, unless it was granted the lock just now.

        If no other waiter needs its request, have the lock service cancel the request. If the lock service
        has granted the lock before, *waiter* gets it.
        """
        with self.section.mutex:
            self.section.catch_up()
            if waiter.grant is not None or waiter.failure is not None or waiter.removed_by_others:
                return
            request = queue.request
            if not waiter.leads or request is None or len(queue.waiters) > 1:
                queue.give_up(waiter, self.now())
                return
            if not _asks_for(request, waiter.options):
                # The caller of *request* has left, and this caller needs another request.
                queue.give_up(waiter, self.now())
                return
        sent = self.now()
        answer: Acquired | Queued | Busy | None = None
        try:
            waiter.call = Call(self.backend.cancel, request, until=until)
            if (yield waiter.call):
                # The lock was granted before, and cancel() has kept it. request() returns its number and ttl.
                waiter.call = Call(self.backend.request, request, until=until)
                answer = yield waiter.call
        except BackendUnavailable:
            if self.now() < until:
                raise
            self._give_up_late(queue, waiter, request)
            return
        with self.section.mutex:
            if waiter.failure is not None:
                self.cancellations.add(request)
                return
            if waiter.removed_by_others:
                self._cancel_unless_used(queue, request)
                return
            if isinstance(answer, Acquired):
                hold = Hold(queue, request, answer.number, sent, answer.ttl, waiter.options.max_hold)
                hold.others_wait = answer.followed
                queue.grant_leader(hold, self.now())
            if waiter.grant is None:
                queue.request = None
                if request.unanswered:
                    self.cancellations.add(request)
                queue.give_up(waiter, self.now())

    def _cancel_unless_used(self, queue: WaitQueue, request: LockRequest) -> None:
        """Cancel *request*, whose caller was removed, unless *queue* or a hold still uses it."""
        if queue.request is not request and queue.hold_of(request.token) is None:
            self.cancellations.add(request)

    # -- questions -------------------------------------------------------------------------------

    def is_holder(self, key: str, owner: Owner) -> bool:
        """Return whether *owner*, a thread or task of this process, has a grant of *key*. Does no I/O."""
        with self.section.mutex:
            queue = self.queues.by_key.get(key)
            return queue is not None and any(owner in hold.owners for hold in queue.holds)

    def refuse_upgrade(self, names: Mapping[str, str], owner: Owner) -> None:
        """Raise `ConfigurationError` if *owner* reads one of *names*, so that it can't write it.

        *names*: each name by its key.
        """
        with self.section.mutex:
            for key, name in names.items():
                self.queues.refuse_upgrade(key, name, owner)

    def refuse_overload(self, key: str, timeout: float) -> None:
        """Raise `TooManyWaiters` if `acquire` would refuse a caller with *timeout* seconds now."""
        if self.section.reentered():
            return
        with self.section.mutex:
            try:
                self.queues.refuse_overload(key, timeout, self.now())
            except TooManyWaiters as refused:
                self._refusals.note(refused)
                raise

    def grants(self) -> list[NameGrant]:
        """Return the grants that are neither released nor lost."""
        with self.section.mutex:
            holds = [hold for queue in self.queues.by_key.values() for hold in queue.holds]
            out = [grant for hold in holds for grant in hold.grants]
        return [grant for grant in out if not (grant.released or grant.lost)]

    def locked(self, key: str) -> bool:
        """Return whether anybody holds *key*. Asks the lock service, unless this process holds it."""
        queue = self.queues.by_key.get(key)
        if queue is not None and queue.holds:
            return True
        if self.section.reentered():
            raise refusal()
        return signal_safety.call(self.backend.locked, key)

    def row(self, key: str) -> StatusRow | None:
        """Return the status row of *key*, even if it has just begun; None: no caller has or wants *key*."""
        queue, now = self.queues.by_key.get(key), self.now()
        return None if queue is None else row_of(queue, now, time.time() - now, moment=0.0)

    def publish_soon(self) -> None:
        """Have the status published soon: a caller has waited for a while."""
        with self.section.mutex:
            self.maintenance.wake_before(self.status.soon(self.now()))

    # -- the life of the client ------------------------------------------------------------------

    def close(self, all_lost: Callable[[], None] = lambda: None) -> None:
        """Release all holds, and stop. Waiters fail, and grants that are out become lost.

        *all_lost*: called when all grants are lost, before any caller is let in again. If a signal handler
        or a finaliser calls this inside of distlock, return at once: another thread closes the client.
        """
        if self.section.reentered() or signal_safety.is_calling():
            threading.Thread(target=self.close, args=(all_lost,), name="distlock-close").start()
            return
        with self.section.mutex:
            self.section.catch_up()
            self._closed = CLOSED
            holds = self.queues.close(CLOSED)
        try:
            for hold in holds:
                self.hold_calls.lose(hold, "the client was closed", cancel=True, off_thread=False)
            all_lost()
            self._stop_maintenance()
            self.callbacks.join()
            signal_safety.call(self.backend.close)
        finally:
            self._closed = None

    def _stop_maintenance(self) -> None:
        """Stop the maintenance thread, and finish its work: cancel requests once more, log the refusals.

        If holds or requests are left, start another maintenance thread.
        """
        self.maintenance.stop()
        run(self.cancellations.tick(self.renewer.next, last=True))
        with self.section.mutex:
            refusals = self._refusals.take()
            self.replies.forget()
            self.status.forget()
            self.recovery.stop()
            self.maintenance.start_anew()
            if self.renewer.holds or self.cancellations:
                self.late_close.wanted = True
                self.maintenance.wake_before(self.now())
        log_refusals(refusals)

    def end_with_process(self) -> None:
        """See `distlock.engine.process.Ending`."""
        if not self.section.mutex.acquire(timeout=1.0):
            return  # Python may have stopped the thread that owns the mutex. The leases end by themselves.
        try:
            self.section.catch_up()
            holds = list(self.renewer.holds)
            refusals = self._refusals.take()
            if self.replies.any:
                self.replies.await_reply(within=0.0)
        finally:
            self.section.mutex.release()
        log_refusals(refusals)
        for hold in holds:
            # Keep the lock of a daemon thread, which runs until the very end: a release would let another
            # holder in beside it.
            owners = hold.owners
            kept = not owners or any(may_run(thread) for thread, *_ in owners)
            self.hold_calls.lose(hold, "the process ends", cancel=not kept, off_thread=False)

    def has_ended(self) -> bool:
        """See `distlock.engine.process.Ending`."""
        return not (self.cancellations or self.replies.any)

    def before_fork(self) -> None:
        """Read the replies to releases, so that the released locks are free when the child asks for them."""
        if not self.replies.any or self.section.reentered() or signal_safety.is_calling():
            return
        if isinstance(self.backend, Posts):
            with suppress(BackendUnavailable):
                signal_safety.call(self.backend.settle, self.now() + SOON)

    def after_fork(self) -> None:
        """Begin anew in a forked child: what the parent holds stays the parent's."""
        self.queues.after_fork()
        self.section.after_fork()
        self._closed = None
        self._stalled.forget()
        self.renewer.forget()
        self.cancellations.forget()
        self.late_close.wanted = self.late_close.closing = False
        self._refusals.forget()
        self.replies.forget()
        self.status.forget()
        self.recovery.forget()
        self.maintenance.start_anew()
        self.callbacks.after_fork()
        self.backend.after_fork()


def _asks_for(request: LockRequest, options: Terms) -> bool:
    """Return whether *request* has the mode, the limit and the permits of *options*."""
    wanted = (options.mode, options.limit, options.permits)
    return (request.mode, request.limit, request.permits) == wanted
