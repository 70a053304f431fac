"""The wait queue of one name: the callers of this process that wait for it, and the holds of this process.

To the lock service the process is one contender, however many callers it has. The waiter at the head of the
queue *leads*: it sends the lock request for all of them. If it gives up, the next waiter goes on with that
request, and so keeps the place in the queue of the lock service.

Promise G5 (docs/explanation/promises.md): callers of a process are served in the order of this queue,
processes in the order of the lock service. `Hold` bounds how often and for how long a hold is handed from
caller to caller before another process gets the lock.

A waiter leaves the queue when it is granted the lock, when its time is over (`give_up`), when it was
interrupted (`abandon`), when the lock service failed (`fail`), or when it asked once and the lock is taken
(`refuse_nonblocking`). Each of these calls `leave`.

Callers of this module own the engine's mutex. No method asks the lock service.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from distlock.backends.base import LockRequest
from distlock.engine.admission import Admission, Pace
from distlock.engine.deferred_work import Cancellations
from distlock.engine.hold import TURN, Hold, HoldCallsProtocol, NameGrant, PermitGrant, SharedGrant, Waiter
from distlock.engine.renewal import Renewer
from distlock.engine.sans_io import Parker
from distlock.errors import BackendUnavailable, LockError
from distlock.grants.grant import Fence
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, READ, Seat, Terms


class HandedOff(NamedTuple):
    """A push from the lock service: after the moment *sent*, it granted *token* a hold with *number*."""

    token: str
    number: int
    sent: float


class Queues(Protocol):
    """The state that the wait queues of one client share: see `distlock.engine.wait_queues.WaitQueues`."""

    by_key: dict[str, WaitQueue]
    #: How many callers wait in all queues.
    waiting: int
    admission: Admission
    renewer: Renewer
    cancellations: Cancellations
    #: Releases and changes the grants.
    hold_calls: HoldCallsProtocol
    #: The first half of the fences.
    epoch: int
    #: Returns whether the lock service is known to have ended the hold of a request. None: the backend can't
    #: know.
    has_ended: Callable[[LockRequest], bool] | None

    def recount(self) -> None: ...


@dataclass(slots=True, eq=False)
class WaitQueue:
    _all: Queues
    key: str
    name: str
    #: See `distlock.engine.admission.AdmissionState`.
    since: float
    pace: Pace | None
    #: Seconds of a turn; None: `distlock.engine.hold.TURN`.
    turn: float | None
    waiters: deque[Waiter] = field(default_factory=deque)
    #: The request that the lock service may have, and that the next leader goes on with. None: none was sent,
    #: or the latest one was granted, refused or cancelled.
    request: LockRequest | None = None
    #: `request`, if its latest answer was to wait.
    queued: LockRequest | None = None
    #: The latest push, until the leader has used it, or an answer from the lock service is newer.
    handed_off: HandedOff | None = None
    #: Whether there is an exclusive hold, or its release is under way. Then no waiter leads.
    busy: bool = False
    #: The exclusive hold.
    hold: Hold | None = None
    #: The holds of readers or of permits, the latest last. Other processes may have such holds, too.
    shared: list[Hold] = field(default_factory=list)
    #: See `distlock.engine.admission.AdmissionState`.
    granted: bool = False

    # -- questions -------------------------------------------------------------------------------

    @property
    def holds(self) -> list[Hold]:
        """The holds that this process owns."""
        return [*self.shared] if self.hold is None else [self.hold, *self.shared]

    @property
    def turns(self) -> int:
        """How many grants its waiters wait for: readers that stand together share one."""
        modes = [waiter.options.mode for waiter in [*self.waiters]]
        return len(modes) - sum(one == other == READ for one, other in pairwise(modes))

    def hold_of(self, token: str) -> Hold | None:
        """Return the hold of this process with *token*; None: it has none, or has lost it."""
        return next((hold for hold in self.holds if hold.request.token == token), None)

    def is_read_by(self, owner: Owner) -> bool:
        return any(waiter.owner == owner for hold in self.holds for waiter in hold.readers.values())

    def first(self) -> Waiter | None:
        """Return the first waiter, or None. Before that, remove waiters whose event loop was closed."""
        while self.waiters:
            if self.waiters[0].parker.alive():
                return self.waiters[0]
            self.leave(self.waiters[0])
        return None

    # -- entering and leaving --------------------------------------------------------------------

    def wake_leader(self) -> None:
        """Wake the leader, so that it sends its request again."""
        if self.waiters and self.waiters[0].leads:
            self.waiters[0].parker.wake()

    def leave(self, waiter: Waiter) -> None:
        """Remove *waiter*, whatever the reason. The caller calls `elect` afterwards, unless a hold begins."""
        self.waiters.remove(waiter)
        waiter.leads = False
        self._all.waiting -= 1

    def give_up(self, waiter: Waiter, now: float) -> None:
        """Remove *waiter*, whose time is over. The next waiter goes on with its request.

        If there is no other waiter, the maintenance thread cancels the request: see `elect`.
        """
        self._all.admission.timed_out(self, now)
        self.leave(waiter)
        self.elect()

    def cancel_request(self) -> None:
        """Have the maintenance thread cancel the request, because no waiter goes on with it."""
        if self.request is not None:
            self._all.cancellations.add(self.request)
            self.request = None

    def elect(self) -> None:
        """Make the first waiter the leader, unless the queue is busy. Delete the queue if it is empty."""
        if self.busy:
            return
        if self.waiters and (first := self.first()) is not None:
            if not first.leads:
                first.leads = True
                first.parker.wake()
        elif self._all.by_key.get(self.key) is self:
            if self.request is not None:
                # The time of its waiters is over, or their event loop was closed.
                self.cancel_request()
            if not self.shared:
                del self._all.by_key[self.key]
                if self.pace is not None:
                    self._all.admission.remember(self.key, self.pace)

    def fail(self, why: str) -> None:
        """Remove all waiters. Their callers raise `BackendUnavailable` with the text *why*."""
        for waiter in list(self.waiters):
            waiter.failure = why
            self.leave(waiter)
            waiter.parker.wake()

    def refuse_nonblocking(self, which: Callable[[Waiter], bool] = lambda waiter: True) -> None:
        """Refuse the waiters that ask once and for which *which* is true, because the lock is taken."""
        for waiter in [one for one in self.waiters if one.asks_once and which(one)]:
            waiter.removed_by_others = True
            self.leave(waiter)
            waiter.parker.wake()

    # -- what the lock service granted -----------------------------------------------------------

    def grant_leader(self, hold: Hold, now: float) -> None:
        """Grant the leader *hold*, which the lock service has just granted to its request.

        If the lease of *hold* is over already, have it cancelled instead.
        """
        if hold.lease_ends <= now:
            # The answer took longer than the lease, so another process may have the lock by now.
            self._all.cancellations.add(hold.request)
            self.request = None
            return
        if hold.request.mode != EXCLUSIVE:
            self._grant_shared(hold, now)
            return
        # If this is interrupted from here on, `mend` finds the hold.
        self.hold = hold
        self.request = None
        self.busy = True
        self._all.renewer.add(hold)
        self._grant(hold, self.waiters[0], now)

    def grant_handed_off(self, window: float) -> bool:
        """Grant the leader the hold that a push handed off. Return False if the leader has to ask first.

        The hold lasts for *window* seconds, unless the lock service confirms it.
        """
        pushed, self.handed_off = self.handed_off, None
        first, request, now = self.waiters[0], self.request, self._all.hold_calls.now()
        options = first.options
        if pushed is None or request is None or request.token != pushed.token:
            return False
        if not (first.leads and options.on_push and options.mode == EXCLUSIVE and options.seat is None):
            return False
        # Awaiting the confirmation in `check` would stop an event loop.
        if first.parker.may_stall or now >= pushed.sent + window / 2:
            return False
        hold = Hold(self, request, pushed.number, now, window, options.max_hold)
        hold.mark_handed_off(pushed.sent, window)
        self.grant_leader(hold, now)
        return True

    def _grant_shared(self, hold: Hold, now: float) -> None:
        """Grant *hold*, of readers or of permits. The next waiter leads, and may get a hold beside it."""
        self.shared.append(hold)
        self.request = None
        self._all.renewer.add(hold)
        if hold.request.mode == READ:
            # Each reader has a max_hold of its own.
            hold.max_hold = math.inf
            self._let_readers_in(hold, now)
        else:
            self._grant(hold, self.waiters[0], now, PermitGrant)
        self.elect()

    def _grant(self, hold: Hold, waiter: Waiter, now: float, kind: type[NameGrant] = NameGrant) -> None:
        """Make the grant of *waiter* on *hold*, and take *waiter* out of the queue. Does not wake it."""
        hold.waiter = waiter
        hold.since = now
        if waiter.options.max_hold != hold.max_hold:
            hold.max_hold = waiter.options.max_hold
            self._all.renewer.replan(hold)
        fence = Fence(self._all.epoch, hold.first_number + hold.used)
        hold.used += 1
        hold.grant = waiter.grant = kind(self._all.hold_calls, hold, fence, now, waiter.options)
        self.leave(waiter)
        if waiter.waited or self.pace is not None:
            self._all.admission.granted(self, now, waiter.waited)
        else:
            self.since, self.granted = now, True
        if waiter.options.fenced:
            self._all.hold_calls.note(waiter.grant)

    # -- hand-off and release --------------------------------------------------------------------

    def hand_off(self, hold: Hold) -> bool:
        """Grant *hold* to the next waiter. Return False if there is none, or if *hold* may not go to it."""
        if not self.waiters or not hold.may_hand_off(now := self._all.hold_calls.now()):
            return False
        waiter = self.first()
        if waiter is None or waiter.options.ttl != hold.request.ttl or waiter.options.mode != EXCLUSIVE:
            # The waiter wants another lease, or to read. A reader has to ask for a hold that readers of other
            # processes can share.
            return False
        if self._all.has_ended is not None and self._all.has_ended(hold.request):
            # Another process may have the lock by now. The release notices that, and reports the loss.
            return False
        self._grant(hold, waiter, now)
        waiter.parker.wake()
        return True

    def end_grant(self, grant: NameGrant) -> bool:
        """End *grant*. Return whether its hold has to be released now, as no caller here goes on with it.

        The queue stays busy until `release_ended`: an earlier request would queue behind its own hold.
        """
        hold = grant._hold
        if hold.grant is grant and self.hold is hold and not hold.readers:
            if self.waiters and self.hand_off(hold):
                return False
        elif not self._end_shared(hold, grant):
            return False
        self._begin_release(hold)
        return True

    def _end_shared(self, hold: Hold, grant: NameGrant) -> bool:
        """End *grant*, which may be one of several of *hold*. Return whether *hold* has to be released."""
        # A writer that also reads keeps its hold until its last read ends.
        if not hold.remove_reader(grant) and hold.grant is not grant:
            return False
        if hold.is_used:
            if hold.grant is grant and hold in self._all.renewer.holds:
                # The max_hold of its writer no longer counts, so a renewal may be due earlier.
                self._all.renewer.replan(hold)
            return False
        if self.hold is hold:
            return not self.hand_off(hold)
        return hold in self.shared

    def _begin_release(self, hold: Hold) -> None:
        hold.releasing = True
        if self.hold is hold:
            self.hold = None
        else:
            self.shared.remove(hold)
        self._all.renewer.holds.pop(hold, None)

    def release_ended(self, hold: Hold, ours: bool | None) -> None:
        """Note that the release of *hold* was sent, or has failed. From now on the queue may ask again.

        *ours*: None if the release failed: then the maintenance thread repeats it.
        """
        if not hold.releasing:
            return
        if ours is None or hold.request.unanswered:
            self._all.cancellations.add(hold.request)
        if hold.downgrade_request is not None:
            self._all.cancellations.add(hold.downgrade_request)
        self._all.renewer.holds.pop(hold, None)
        hold.releasing = False
        if hold.waiter is not None:
            # Break the circle of references, or these objects would live until garbage is collected.
            hold.grant = hold.waiter.grant = None
        if self.hold is None and hold.request.mode == EXCLUSIVE:
            self.busy = False
        self.elect()

    def lose(self, hold: Hold, why: str, cancel: bool) -> list[NameGrant]:
        """End *hold*, which is lost. Return its grants that are not released; none if it was lost before.

        *cancel*: whether the lock service may still have the hold, so that it has to be released there.
        """
        if hold.lost or hold not in self.holds:
            return []
        hold.lost = why
        self._all.renewer.holds.pop(hold, None)
        if cancel or hold.request.unanswered:
            self._all.cancellations.add(hold.request)
        if hold.downgrade_request is not None:
            self._all.cancellations.add(hold.downgrade_request)
        if self.hold is hold:
            self.hold = None
            self.busy = False
        else:
            self.shared.remove(hold)
        self.elect()
        return [grant for grant in hold.grants if not grant.released]

    # -- readers ---------------------------------------------------------------------------------
    #
    # If the lock service has answered that no other process waits, later readers join the hold for one turn,
    # without a call. After that, a reader asks for another hold, and queues behind the writers that wait by
    # then. The older hold ends with its last reader. So a writer waits for at most one turn and the longest
    # read.

    def join_readers(self, parker: Parker, timeout: float, options: Terms, now: float) -> Waiter | None:
        """Let a reader join a hold. Return its waiter; None if it has to ask the lock service."""
        hold = self._hold_of_owner(parker.owner) or self._hold_open_to_readers(options, now)
        if hold is None:
            return None
        waiter = Waiter(parker, now, now + timeout, not timeout > 0, options)
        self._admit_reader(hold, waiter, now)
        return waiter

    def _hold_of_owner(self, owner: Owner) -> Hold | None:
        """Return the hold under which *owner* reads or writes; None: there is none.

        If *owner* waited in the queue, it would wait for itself.
        """
        for hold in self.holds:
            for grant in hold.grants:
                waiter = hold.waiter_of(grant)
                if waiter is not None and waiter.owner == owner and not (grant.released or grant.lost):
                    return hold
        return None

    def _hold_open_to_readers(self, options: Terms, now: float) -> Hold | None:
        """Return the hold that a reader with *options* may join now; None: there is none."""
        if self.waiters or not self.shared:
            return None
        hold = self.shared[-1]
        if hold.others_wait or hold.release_requested or hold.request.mode != READ:
            return None
        if hold.request.ttl != options.ttl:
            return None
        return hold if now < min(hold.turn_ends, hold.lease_ends - hold.request.ttl / 3) else None

    def _let_readers_in(self, hold: Hold, now: float) -> None:
        """Let in the readers at the head of the queue, up to the first writer."""
        while (waiter := self.first()) is not None and waiter.options.mode == READ:
            if waiter.options.ttl != hold.request.ttl and hold.readers:
                break  # It wants a lease of another length.
            if not hold.readers:
                self._all.admission.granted(self, now, waiter.waited)
            self._admit_reader(hold, waiter, now)
            self.leave(waiter)
            waiter.parker.wake()

    def _admit_reader(self, hold: Hold, waiter: Waiter, now: float) -> None:
        grant = NameGrant(self._all.hold_calls, hold, hold.latest_fence(self._all.epoch), now, waiter.options)
        grant._max_hold_ends = now + waiter.options.max_hold
        earlier = grant._max_hold_ends < hold.first_reader_ends
        hold.add_reader(grant, waiter)
        waiter.grant = grant
        if earlier and hold in self._all.renewer.holds:
            self._all.renewer.replan(hold)

    def is_writer(self, grant: NameGrant) -> bool:
        """Return whether *grant* is a writer's, and still has the exclusive hold."""
        hold = grant._hold
        return hold.grant is grant and self.hold is hold and not grant.released

    def downgrade(self, hold: Hold, request: LockRequest, grant: NameGrant) -> None:
        """Turn *grant*, a writer's, into a reader's, and let the next readers in.

        *request*: the same request in the mode `READ`, by which the lock service knows *hold* now.
        """
        assert hold.waiter is not None
        grant.mode, grant._max_hold_ends = READ, hold.since + hold.max_hold
        hold.add_reader(grant, hold.waiter)
        # If this is interrupted from here on, `mend` completes it.
        hold.request = request
        self._open_hold(hold)
        self._let_readers_in(hold, self._all.hold_calls.now())
        self.elect()

    def _open_hold(self, hold: Hold) -> None:
        """Turn *hold*, which was a writer's, into a hold of readers."""
        hold.grant = hold.waiter = hold.downgrade_request = None
        hold.max_hold = math.inf
        # Other processes may wait: the lock service did not say.
        hold.others_wait = True
        if hold not in self.shared:
            self.shared.append(hold)
        self.hold, self.busy = None, False
        self._all.renewer.replan(hold)

    def end_hung_readers(self, hold: Hold) -> list[NameGrant]:
        """Remove the readers of *hold* that exceed their max_hold, and return their grants.

        If no caller uses the hold any more, it is handed off or released.
        """
        hung = hold.remove_hung_readers(self._all.hold_calls.now())
        if hung and hold in self.holds:
            self.mend()
        return hung

    # -- batches ---------------------------------------------------------------------------------

    def is_followed(self, grant: NameGrant) -> bool:
        """Return whether the next waiter may share *grant*."""
        return self._next_to_share(grant) is not None

    def _next_to_share(self, grant: NameGrant) -> tuple[Waiter, Seat] | None:
        """Return the next waiter and its seat, if it may share *grant* in a batch; else None."""
        hold, now = grant._hold, self._all.hold_calls.now()
        if not hold.is_out(grant) or hold.waiter is None or grant.released or hold.lost:
            return None
        if not hold.acknowledged or now >= min(grant.since + TURN, hold.lease_ends - hold.request.ttl / 3):
            return None
        waiter, mine = self.first(), hold.waiter.options.seat
        if waiter is None or mine is None or (seat := waiter.options.seat) is None or seat.key != mine.key:
            return None
        return waiter, seat

    def share(self, grant: NameGrant, batch: object) -> bool:
        """Let the next waiter share *grant* in *batch*, and wake it. Return False if no waiter may.

        Only the waiter at the head of the queue is considered, so no waiter is skipped.
        """
        if (found := self._next_to_share(grant)) is None:
            return False
        waiter, seat = found
        hold, now = grant._hold, self._all.hold_calls.now()
        waiter.grant = SharedGrant(self._all.hold_calls, hold, grant.fence, now, waiter.options)
        seat.batch = batch
        self.leave(waiter)
        self._all.admission.granted(self, now, waited=True)
        # The turn of this process ends with the batch.
        hold.turn_ends = now
        waiter.parker.wake()
        return True

    # -- after an interrupt ----------------------------------------------------------------------

    def abandon(self, parker: Parker, error: BaseException) -> None:
        """Remove the waiter and drop the grants of the caller with *parker*, which *error* interrupted.

        It may run later, in another thread, or twice: see `CriticalSection.undo`. If *error* is a
        `BackendUnavailable`, all other waiters fail with it, too.
        """
        if not isinstance(error, LockError):
            self.mend()
        for hold in self.holds:
            for grant in hold.grants:
                if (mine := hold.waiter_of(grant)) is not None and mine.parker is parker:
                    self.drop(grant)
        waiter = next((one for one in self.waiters if one.parker is parker), None)
        if waiter is None:
            return
        if waiter.leads:
            # The outcome of its request is unknown, so the next leader sends another request.
            self.cancel_request()
        self.leave(waiter)
        if isinstance(error, BackendUnavailable):
            # Else each of the other waiters would try the lock service until its own time-out.
            self.fail(str(error))
        self.elect()

    def drop(self, grant: NameGrant) -> None:
        """End *grant* without I/O, at whatever step its release was interrupted. May be called twice."""
        grant.end()
        hold = grant._hold
        if hold in self.holds:
            self.mend()
        elif hold.releasing and (hold.is_out(grant) or grant.mode == READ):
            self.release_ended(hold, None)

    def mend(self) -> None:
        """Complete a change that was interrupted halfway, and release the holds that no caller uses."""
        renewer = self._all.renewer
        for hold in self.holds:
            self.busy = self.busy or self.hold is hold
            if self.hold is hold and hold.request.mode == READ:
                self._open_hold(hold)
            if self.request is hold.request:
                self.request = None
            for grant in hold.grants:
                self._mend_grant(hold, grant)
            if hold.is_used:
                if hold not in renewer.holds:
                    renewer.add(hold)
                elif hold.readers:
                    renewer.replan(hold)  # The max_hold of its writer may not count any more.
            elif self.hold is not hold or not self.hand_off(hold):
                # No caller uses it, so no caller would ever release it.
                self._begin_release(hold)
                self.release_ended(hold, None)
        self._all.recount()
        self.elect()

    def _mend_grant(self, hold: Hold, grant: NameGrant) -> None:
        waiter = hold.waiter_of(grant)
        if grant.released:
            hold.remove_reader(grant)
        elif waiter is not None:
            waiter.grant = grant
            if waiter in self.waiters:
                self.leave(waiter)
                self._all.admission.granted(self, grant.since, waiter.waited)
            waiter.parker.wake()
