"""What the head of a waiting room says to the lock service, on behalf of all in it."""

from __future__ import annotations

import os
from collections.abc import Callable

from distlock.backends.base import Ask, Backend, Busy, Held, Queued
from distlock.backends.inspectable import inspectable
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import SPAN
from distlock.engine.keeper import Keeper
from distlock.engine.limits import Limits
from distlock.engine.room import Room, Rooms, Waiter
from distlock.engine.steps import Steps
from distlock.engine.turns import Turns
from distlock.errors import BackendUnavailable
from distlock.modes import EXCLUSIVE, PERMIT
from distlock.reentrance import is_parked, refusal
from distlock.terms import Terms

#: How much longer than the caller waits a call to the lock service may take, seconds: an answer that is under
#: way is awaited, and a place in the queue is given up.
LAST_WORDS = 0.25


class Leading:
    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        rooms: Rooms,
        turns: Turns,
        keeper: Keeper,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._rooms = rooms
        self._turns = turns
        self._keeper = keeper
        self._inspectable = inspectable(backend)
        self._limits = Limits()

    def ask(self, waiter: Waiter, patient: bool, until: float) -> Steps[Held | Queued | Busy | None]:
        """The lock service's answer. None if it is too late for one, and it has said to wait before.

        *patient*: the caller waits, so that it may be queued. *until*: the moment when it awaits no answer
        any more.
        """
        room = waiter.room
        mine = room.ask
        if mine is not None and (patient != mine.wait or not _asks_for(mine, waiter.terms)):
            # Its caller has left. It asked once, and was passed over with the answer, or waited, or wanted
            # something else: what we want has a place of its own.
            with self._section.mutex:
                self._keeper.retire(mine)
            mine = None
        told_to_wait = mine is not None
        if mine is None:
            terms = waiter.terms
            if terms.mode == EXCLUSIVE:
                mine = room.ask = Ask(room.key, self._token(), terms.ttl, SPAN, patient)
            else:
                mine = room.ask = self._ask_for_share(room, terms, patient)
        room.queued = None
        mine.prompt = not waiter.gate.may_stall
        sent = self._now()
        try:
            waiter.call = Call(self._backend.request, mine, until=until)
            answer: Held | Queued | Busy = yield waiter.call
        except BackendUnavailable:
            if self._now() < until:
                raise
            # That it is too late for us is no outage for those who have more time.
            with self._section.mutex:
                if waiter.passed_over:
                    return None
                if waiter.failure is not None:
                    self._keeper.retire(mine)
                    raise
                self.give_up(waiter)
            if not told_to_wait:
                raise
            return None
        with self._section.mutex:
            if waiter.failure is not None:
                # The client was closed meanwhile.
                self._keeper.retire(mine)
            elif waiter.passed_over:
                self._leave_behind(room, mine)
                return None
            elif isinstance(answer, Held):
                self._turns.take(room, mine, answer, sent)
                if room.busy and room.queue:
                    self._rooms.refuse_once(room)
            elif isinstance(answer, Queued):
                room.queued = mine
                self._rooms.refuse_once(room)
                if room.handed is not None and room.handed.sent < sent:
                    # What an earlier push said has passed on.
                    room.handed = None
            elif isinstance(answer, Busy):
                room.ask = None
                if mine.unanswered:
                    self._keeper.retire(mine)
                self._rooms.leave(waiter)
                # Those that were there when it was sent, and want the same, need not ask one by one.
                self._rooms.refuse_once(room, lambda one: one.came < sent and _asks_for(mine, one.terms))
                self._rooms.settle(room)
        if mine.mode == PERMIT and isinstance(answer, Held):
            self._limits.compare(room.name, mine, answer)
        return answer

    def _ask_for_share(self, room: Room, terms: Terms, patient: bool) -> Ask:
        return Ask(room.key, self._token(), terms.ttl, 1, patient, terms.mode, terms.limit, terms.permits)

    def _token(self) -> str:
        """A new secret. Where people may look at the lock service it begins with the process."""
        process = "" if self._inspectable is None else self._inspectable.process
        return process + os.urandom(16).hex()

    def leave(self, waiter: Waiter, until: float) -> Steps[None]:
        """Out of patience. Whether it was granted just then is decided here, or by the lock service."""
        room = waiter.room
        with self._section.mutex:
            self._section.catch_up()
            if waiter.grant is not None or waiter.failure is not None or waiter.passed_over:
                return
            mine = room.ask
            # What one that has left wanted may be of no use to us, should it come just now.
            if not waiter.leads or mine is None or len(room.queue) > 1 or not _asks_for(mine, waiter.terms):
                self.give_up(waiter)
                return
        sent = self._now()
        try:
            waiter.call = Call(self._backend.cancel, mine, until=until)
            ours = yield waiter.call
            answer = None
            # Ours after all? cancel() kept it and says no more, so request() tells what it is worth.
            if ours:
                waiter.call = Call(self._backend.request, mine, until=until)
                answer = yield waiter.call
        except BackendUnavailable:
            if self._now() < until:
                raise
            with self._section.mutex:
                if waiter.failure is not None:
                    self._keeper.retire(mine)
                elif not waiter.passed_over:
                    self.give_up(waiter)
            return
        with self._section.mutex:
            if waiter.failure is not None:
                self._keeper.retire(mine)
                return
            if waiter.passed_over:
                self._leave_behind(room, mine)
                return
            if isinstance(answer, Held):
                self._turns.take(room, mine, answer, sent)
            if waiter.grant is None:
                room.ask = None
                if mine.unanswered:
                    self._keeper.retire(mine)
                self._rooms.give_up(waiter, self._now())

    def refuse_behind_own(self, waiter: Waiter) -> None:
        """A signal handler must not wait behind the thread that it has interrupted. Raises `Reentered`."""
        if is_parked():
            with self._section.mutex:
                if any(one.owner == waiter.owner and one is not waiter for one in waiter.room.queue):
                    raise refusal()

    def _leave_behind(self, room: Room, mine: Ask) -> None:
        """The answer came too late for the caller that asked. It is for others of the room, or for nobody."""
        if room.ask is not mine and room.hold_of(mine.token) is None:
            self._keeper.retire(mine)

    def give_up(self, waiter: Waiter) -> None:
        """Leave in silence: what the lock service knows of us is for the next in line, or the keeper."""
        room = waiter.room
        if waiter.leads and room.ask is not None and len(room.queue) == 1:
            self._keeper.retire(room.ask)
            room.ask = None
        self._rooms.give_up(waiter, self._now())


def _asks_for(mine: Ask, terms: Terms) -> bool:
    """Whether *mine* asks for what *terms* want."""
    return (mine.mode, mine.limit, mine.permits) == (terms.mode, terms.limit, terms.permits)
