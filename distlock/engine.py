"""The state machine between callers and a lock service: who leads, who holds, who is next.

Written as steps (`distlock.steps`): what stands between two yields happens under one mutex or touches
only its own waiter, so any interleaving of yields is all that can happen. The tests play them.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable

from distlock import clock
from distlock.backends.base import Ask, Backend, Busy, Held, Queued
from distlock.errors import BackendUnavailable
from distlock.fork import forget_in_children
from distlock.grant import Fence, Grant, NameGrant
from distlock.hold import SPAN, Hold
from distlock.keeper import Keeper
from distlock.news import News
from distlock.rlock import Inside
from distlock.room import Room, Rooms, Waiter
from distlock.steps import Call, Gate, Park, Steps

logger = logging.getLogger("distlock")

#: Told of each lost grant: the grant, and why it was lost.
OnLost = Callable[[Grant, str], None]


class Engine:
    def __init__(
        self,
        backend: Backend,
        *,
        ttl: float,
        max_hold: float,
        max_waiters: int,
        max_waiters_total: int,
        era: int,
        on_lost: OnLost | None = None,
        now: Callable[[], float] = clock.now,
        threads: bool = True,
    ) -> None:
        self.backend = backend
        self.ttl = ttl
        self.era = era
        self.on_lost = on_lost
        self.now = now
        self.mutex = threading.Lock()
        self.rooms = Rooms(max_waiters, max_waiters_total)
        self.inside: Inside = {}
        self.keeper = Keeper(self, max_hold, threads)
        self.news = News(self)
        backend.open(self.news)
        forget_in_children(self)

    # -- acquire ---------------------------------------------------------------------------------

    def acquire(self, key: str, name: str, gate: Gate, timeout: float, ttl: float) -> Steps[NameGrant | None]:
        """Wait up to *timeout* seconds (0: not at all) for a grant, or return None."""
        deadline = self.now() + timeout
        with self.mutex:
            waiter = self.rooms.enter(key, name, gate, patient=timeout > 0)
        if waiter is None:
            return None
        try:
            asked = False
            while waiter.grant is None:
                if waiter.failure is not None:
                    raise BackendUnavailable(waiter.failure)
                pause = deadline - self.now()
                if pause <= 0 and (asked or timeout > 0):
                    yield from self._leave(waiter)
                    break
                if waiter.leads:
                    answer = yield from self._ask(waiter, ttl, patient=timeout > 0)
                    asked = True
                    if isinstance(answer, Busy):
                        break
                    if isinstance(answer, Queued):
                        pause = min(pause, answer.poll)
                    else:
                        continue
                yield Park(gate, pause)
        except BaseException as error:
            self._abandon(waiter, error)
            raise
        if waiter.grant is None or not waiter.grant.lost:
            return waiter.grant
        # We slept (a stopped process, a long pause) until after the end of what we were granted meanwhile.
        yield from self.release(waiter.grant)
        left = max(0.0, deadline - self.now())
        return (yield from self.acquire(key, name, gate, left, ttl)) if left else None

    def _ask(self, waiter: Waiter, ttl: float, patient: bool) -> Steps[Held | Queued | Busy]:
        room = waiter.room
        ask = room.ask
        if ask is None:
            ask = room.ask = Ask(room.key, secrets.token_hex(16), ttl, SPAN, patient)
        sent = self.now()
        answer: Held | Queued | Busy = yield Call(self.backend.request, ask)
        with self.mutex:
            if isinstance(answer, Held):
                self._take(room, ask, answer, sent)
            elif isinstance(answer, Busy):
                room.ask = None
                self.rooms.leave(waiter)
                self.rooms.settle(room)
        return answer

    def _leave(self, waiter: Waiter) -> Steps[None]:
        """Out of patience. Who was granted in the same moment is decided: here, or by the service."""
        room = waiter.room
        with self.mutex:
            if waiter.grant is not None:
                return
            if not waiter.leads or room.ask is None or len(room.queue) > 1:
                self.rooms.leave(waiter)
                self.rooms.settle(room)
                return
            ask = room.ask
        sent = self.now()
        if (yield Call(self.backend.cancel, ask)):
            # Ours after all. cancel() kept it and says no more, so request() tells what it is worth.
            answer = yield Call(self.backend.request, ask)
            with self.mutex:
                if isinstance(answer, Held):
                    self._take(room, ask, answer, sent)
        with self.mutex:
            if waiter.grant is None:
                room.ask = None
                self.rooms.leave(waiter)
                self.rooms.settle(room)

    def _abandon(self, waiter: Waiter, error: BaseException) -> None:
        """Interrupted, or the service failed: leave nothing behind. No I/O, for we may be torn down."""
        room = waiter.room
        with self.mutex:
            if waiter.grant is not None:
                self._drop(waiter.grant)
                return
            if waiter not in room.queue:
                return
            if waiter.leads and room.ask is not None:
                # What became of the request is unknown. The token dies with it.
                self.keeper.retire(room.ask)
                room.ask = None
            self.rooms.leave(waiter)
            if isinstance(error, BackendUnavailable) and waiter.failure is None:
                # The others would each find out after a time-out of their own, one after the other.
                for other in list(room.queue):
                    other.failure = str(error)
                    self.rooms.leave(other)
                    other.gate.wake()
            self.rooms.settle(room)

    # -- release ---------------------------------------------------------------------------------

    def release(self, grant: NameGrant) -> Steps[None]:
        """Pass the hold on to the next waiter here, or give it back to the service."""
        with self.mutex:
            if grant.released:
                return
            grant._released = True
            hold = grant._hold
            room = hold.room
            if room.hold is not hold or self._pass_on(hold):
                return
            # The room stays busy until the service knows, or we would queue behind ourselves.
            room.hold = None
            self.keeper.discard(hold)
        ours = None
        try:
            ours = yield Call(self.backend.release, hold.ask)
        except BackendUnavailable as error:
            logger.warning(
                "The lock %r will be released as soon as its service answers: %s", room.name, error
            )
        finally:
            with self.mutex:
                if ours is None:
                    self.keeper.retire(hold.ask)
                room.busy = False
                self.rooms.settle(room)
        if ours is False:
            hold.lost = "the service had given it up before it was released"
            self._tell_lost(grant, hold.lost)

    def let_go(self, grant: NameGrant) -> None:
        """Release without I/O here: the keeper does it. For those who are being torn down."""
        with self.mutex:
            self._drop(grant)

    def locked(self, key: str) -> bool:
        with self.mutex:
            room = self.rooms.by_key.get(key)
            if room is not None and room.hold is not None:
                return True
        return self.backend.locked(key)

    # -- loss ------------------------------------------------------------------------------------

    def lose(self, hold: Hold, why: str, retire: bool) -> None:
        """The hold is not ours any more. The waiters start anew; the grant that is out is told."""
        with self.mutex:
            if hold.lost or hold.room.hold is not hold:
                return
            hold.lost = why
            self.keeper.discard(hold)
            if retire:
                self.keeper.retire(hold.ask)
            hold.room.hold = None
            hold.room.busy = False
            self.rooms.settle(hold.room)
            grant = hold.grant
        if grant is not None:
            self._tell_lost(grant, why)

    def _tell_lost(self, grant: NameGrant, why: str) -> None:
        logger.error("The lock %r (fence %d:%d) was lost: %s.", grant.name, *grant.fence, why)
        if self.on_lost is not None:
            try:
                self.on_lost(grant, why)
            except Exception:
                logger.exception("on_lost failed for the lock %r.", grant.name)

    # -- under the mutex -------------------------------------------------------------------------

    def _take(self, room: Room, ask: Ask, held: Held, sent: float) -> None:
        """The service granted a hold: the leader gets the first grant of it."""
        room.ask = None
        hold = Hold(room, ask, held.fence, sent, held.ttl)
        if hold.deadline <= self.now():
            # The answer was longer under way than the lease: it is somebody else's by now.
            self.keeper.retire(ask)
            return
        room.hold = hold
        room.busy = True
        self.keeper.add(hold)
        self._grant(hold, room.queue[0])

    def _grant(self, hold: Hold, waiter: Waiter) -> None:
        fence = Fence(self.era, hold.first_fence + hold.used)
        hold.used += 1
        hold.grant = waiter.grant = NameGrant(self, hold, hold.room.name, fence, self.now())
        self.rooms.leave(waiter)

    def _pass_on(self, hold: Hold) -> bool:
        room = hold.room
        if not room.queue or not hold.may_pass(self.now()):
            return False
        waiter = room.queue[0]
        self._grant(hold, waiter)
        waiter.gate.wake()
        return True

    def _drop(self, grant: NameGrant) -> None:
        if grant.released:
            return
        grant._released = True
        hold = grant._hold
        room = hold.room
        if room.hold is not hold or self._pass_on(hold):
            return
        self.keeper.discard(hold)
        self.keeper.retire(hold.ask)
        room.hold = None
        room.busy = False
        self.rooms.settle(room)

    # -- life cycle ------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back what can be given back, and stop. Grants that are out become lost."""
        with self.mutex:
            holds = [room.hold for room in self.rooms.by_key.values() if room.hold is not None]
        for hold in holds:
            self.lose(hold, "the client was closed", retire=True)
        self.inside.clear()
        self.keeper.close()
        self.backend.close()

    def after_fork(self) -> None:
        """In the child: what the parent holds stays the parent's."""
        for room in self.rooms.by_key.values():
            if room.hold is not None:
                room.hold.lost = "it belongs to the parent of this forked process"
                room.hold.room = Room(room.key, room.name)
        self.mutex = threading.Lock()
        self.rooms.clear()
        self.inside.clear()
        self.keeper.after_fork()
        self.backend.after_fork()
