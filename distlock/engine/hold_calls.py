"""What the holder of a grant may ask of the lock service: to confirm, change or release its hold.

A method that asks the lock service is a generator of commands. It does no I/O itself, and changes state only
under the mutex.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from distlock.backends.base import Acquired, Backend, LockRequest, refuse_lacking
from distlock.backends.protocols import Posts, PushesHolds, Reads
from distlock.engine.critical_section import CriticalSection
from distlock.engine.deferred_work import Cancellations, ReplyReader
from distlock.engine.events import Callbacks
from distlock.engine.hold import Hold, NameGrant
from distlock.engine.recovery import Recovery
from distlock.engine.renewal import NOT_OURS
from distlock.engine.sans_io import Call, Commands
from distlock.errors import BackendUnavailable, ConfigurationError, Reentered
from distlock.signal_safety import refusal
from distlock.terms import EXCLUSIVE, READ

logger = logging.getLogger("distlock")


class HoldCalls:
    """Releases, confirms and changes the grants of one client."""

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        cancellations: Cancellations,
        replies: ReplyReader,
        callbacks: Callbacks,
        recovery: Recovery,
    ) -> None:
        self.section = section
        self.backend = backend
        self.now = now
        self._cancellations = cancellations
        self._replies = replies
        self._callbacks = callbacks
        self._recovery = recovery
        self._posts = backend if isinstance(backend, Posts) else None
        self._hands_off = backend if isinstance(backend, PushesHolds) else None

    # -- release ---------------------------------------------------------------------------------

    def release(self, grant: NameGrant, until: float = math.inf) -> Commands[None]:
        """End *grant*, and hand its hold to the next waiter here, or release it on the lock service.

        *until*: the moment at which the caller goes on, and leaves the rest to the maintenance thread.
        """
        section = self.section
        if section.reentered():
            if grant.end():
                self.abandon(grant, refusal())
            return
        hold = grant._hold
        ours: bool | None = None
        try:
            if not hold.acknowledged and hold.queue.waiters and not grant.released:
                # The next waiter here gets only a confirmed hold. A release needs no confirmation.
                with suppress(BackendUnavailable, Reentered):
                    yield from self.acknowledge(hold)
            with section.mutex:
                if section.cleanups:
                    section.catch_up()
                if not grant.end() or not hold.queue.end_grant(grant):
                    return
            try:
                if self._posts is None:
                    ours = yield Call(self.backend.release, hold.request, until=until)
                else:
                    # Hardly any caller needs the reply, so it is read later. `_replied` is called with it
                    # unless it says that the hold was ours.
                    replied = partial(self._replied, grant, hold)
                    yield Call(self._posts.post, hold.request, replied, until=until)
                    ours = True
            except Reentered:
                pass  # The maintenance thread releases it.
            except BackendUnavailable as error:
                logger.warning(
                    "The lock %r will be released as soon as its lock service answers: %s", grant.name, error
                )
            with section.mutex:
                hold.queue.release_ended(hold, ours)
                if ours and self._posts is not None:
                    self._replies.await_reply()
        except BaseException as error:
            self.abandon(grant, error)
            raise
        if ours is False:
            self._callbacks.lost(grant, self._note_end_lost(grant, hold))

    def abandon(self, grant: NameGrant, error: BaseException) -> None:
        """Have the maintenance thread release *grant*, whose caller *error* has interrupted. No I/O."""
        self.section.undo(error, partial(grant._hold.queue.drop, grant))

    def _replied(self, grant: NameGrant, hold: Hold, ours: bool | None) -> None:
        """Handle the reply to a release that nobody waited for. *ours*: see `Posts.post`."""
        if ours is None:
            with self.section.mutex:
                self._cancellations.add(hold.request)
        elif not ours:
            self._callbacks.lost_off_thread(grant, self._note_end_lost(grant, hold))

    def _note_end_lost(self, grant: NameGrant, hold: Hold) -> str:
        if self.now() >= hold.lease_ends:
            why = self.why_ended(hold)
        else:
            why = "the lock service had given it up before it was released"
        grant.end_lost(why)
        return why

    # -- loss ------------------------------------------------------------------------------------

    def lose(self, hold: Hold, why: str, cancel: bool, off_thread: bool = True) -> None:
        """End *hold*, which is lost, log that, and have `on_lost` called for each of its grants.

        The caller does not own the mutex. *cancel*: whether the lock service may still have the hold, so that
        it has to be released there. *off_thread*: False if `on_lost` has to run in this thread, because the
        client closes or the process ends after it.
        """
        with self.section.mutex:
            lost = hold.queue.lose(hold, why, cancel)
        for grant in lost:
            (self._callbacks.lost_off_thread if off_thread else self._callbacks.lost)(grant, why)

    def end_hung_readers(self, hold: Hold) -> None:
        """End the readers of *hold* that exceed their max_hold, and have `on_lost` called for them."""
        with self.section.mutex:
            hung = hold.queue.end_hung_readers(hold)
        for grant in hung:
            self._callbacks.lost_off_thread(grant, grant.why_lost or "")

    def why_ended(self, hold: Hold) -> str:
        """Return why *hold* has ended, as text."""
        if self.now() >= hold.max_hold_ends:
            return f"it was held longer than max_hold={hold.max_hold:g} seconds"
        if not hold.acknowledged:
            return "its hand-off was not acknowledged in time"
        return "its lease ended before it could be renewed"

    # -- confirmation ----------------------------------------------------------------------------

    def acknowledge(self, hold: Hold) -> Commands[None]:
        """Have the lock service confirm *hold*, if a push has handed it off. If it refuses, the hold is lost.

        The user's code may begin on the push. `Grant.check`, and with it the COMMIT of a guard, waits for the
        confirmation; so does the next hand-off. If the code runs for longer, the renewer confirms the hold.

        Raises:
            BackendUnavailable: it is unknown whether this process has the hold.
            Reentered: a signal handler or a finaliser calls, inside of the engine.
        """
        if hold.acknowledged or hold.lost or self._hands_off is None:
            return
        if self.section.reentered():
            raise refusal()
        sent = self.now()
        if sent >= hold.lease_ends:
            return
        number = hold.first_number
        [ours] = yield Call(self._hands_off.acknowledge, [(hold.request, number)], until=hold.lease_ends)
        if ours:
            with self.section.mutex:
                hold.renew(sent, hold.request.ttl)
        elif hold.first_number == number:
            # If the numbers differ, the fence was raised during the call. The refusal is about the old number
            # then, and the hold is still ours.
            self.lose(hold, NOT_OURS, cancel=False)

    # -- fences ----------------------------------------------------------------------------------

    def raise_fence(self, grant: NameGrant, number: int) -> Commands[bool]:
        """Raise the fence of *grant* above *number*, if the lock service says that the lock is still ours.

        The numbers of the lock service fall behind those in a database if the service has lost its data, or
        if its clock was set back. Then no transaction would pass the fence until the numbers catch up.

        The caller has locked the fence row before it read *number* there. So *number* is from an earlier
        holder, or the lock would have been lost. The fence of a hold is raised only once: if the row has an
        even larger number later, that is from a later holder. All readers of a hold get the raised fence.

        Return False if the grant has ended, the hold is lost, or its fence was raised before.
        """
        if self.section.reentered():
            raise refusal()
        hold = grant._hold
        with self.section.mutex:
            if not _is_out(grant):
                return False
            if hold.fence_raised:
                if grant.mode != READ or hold.first_number <= number:
                    return False
                grant._fence = hold.latest_fence(grant.fence.epoch)
                return True
        # The lock service checks only the token when it raises a fence, so confirm the hold before.
        yield from self.acknowledge(hold)
        if hold.lost:
            return False
        sent = self.now()
        answer: Acquired | None = yield Call(self.backend.raise_fence, hold.request, number)
        if answer is None:
            self.lose(hold, NOT_OURS, cancel=False)
            return False
        with self.section.mutex:
            if not _is_out(grant):
                return False
            was = grant.fence
            hold.raise_fence(answer.number)
            hold.renew(sent, answer.ttl)
            if grant.mode != READ:
                hold.used = 1
            grant._fence = hold.latest_fence(was.epoch)
            if grant._options.fenced:
                self.note(grant)
        self._callbacks.fence_raised(grant, was, number)
        return True

    # -- recovery --------------------------------------------------------------------------------

    def note(self, grant: NameGrant) -> None:
        """Note, for the neighbours of this process, that a fenced guard has *grant*."""
        self._recovery.note(grant, grant._hold.request.key, grant._hold.first_number)

    def erase(self, grant: NameGrant) -> None:
        """Erase the note of *grant*, before its hold is released or handed to another caller."""
        self._recovery.erase(grant)

    def keep_if_killed(self, grant: NameGrant) -> None:
        """Let the hold of *grant* last for its ttl if this process dies."""
        if grant._options.fenced:
            with self.section.mutex:
                self._recovery.erase(grant)

    # -- downgrade -------------------------------------------------------------------------------

    def downgrade(self, grant: NameGrant) -> Commands[None]:
        """Turn *grant*, a writer's, into a reader's, with no other writer in between.

        See `distlock.Grant.downgrade`.
        """
        if self.section.reentered():
            raise refusal()
        backend, queue = self.backend, grant._hold.queue
        refuse_lacking(backend, backend.capabilities, "read", "downgrade()")
        assert isinstance(backend, Reads)
        if grant._options.mode != EXCLUSIVE:
            raise ConfigurationError(
                f"The {grant.shown()} can't be downgraded: only a write lock can. Take it by "
                "locks.write_lock(…) first."
            )
        try:
            yield from self._downgrade(backend, grant)
        except BaseException as error:
            self.section.undo(error, queue.mend)
            raise

    def _downgrade(self, backend: Reads, grant: NameGrant) -> Commands[None]:
        hold, queue = grant._hold, grant._hold.queue
        yield from self.acknowledge(hold)
        grant.check()
        with self.section.mutex:
            request, begins = hold.request, queue.is_writer(grant)
            if begins and hold.downgrade_request is None:
                # From now on the lock service may let readers in, so no other writer here gets the hold.
                hold.downgrade_request = replace(request, mode=READ)
            downgraded: LockRequest | None = hold.downgrade_request
        if not begins or downgraded is None:
            # Another call has downgraded it before. Or it was released or lost: then check() raises.
            grant.check()
            return
        ours: bool = yield Call(backend.downgrade, request, until=hold.lease_ends)
        if not ours:
            self.lose(hold, NOT_OURS, cancel=False)
        with self.section.mutex:
            if ours and queue.is_writer(grant):
                queue.downgrade(hold, downgraded, grant)
                return
            if hold.request is not downgraded:
                # The hold was released or lost during the call, and its release may have been carried out
                # before the downgrade. So cancel the reader's hold, too. If instead another call downgraded
                # the hold first, `hold.request` is *downgraded*, and the reader releases it.
                self._cancellations.add(downgraded)
        grant.check()

    # -- batches ---------------------------------------------------------------------------------

    def is_followed(self, grant: NameGrant) -> bool:
        """Return whether the next waiter may share *grant* in a batch."""
        with self.section.mutex:
            return grant._hold.queue.is_followed(grant)

    def share(self, grant: NameGrant, batch: object) -> bool:
        """Let the next waiter share *grant* in *batch*. Return False if none may."""
        with self.section.mutex:
            self.section.catch_up()
            return grant._hold.queue.share(grant, batch)


def _is_out(grant: NameGrant) -> bool:
    return grant._hold.is_out(grant) and not grant.released and not grant.lost
