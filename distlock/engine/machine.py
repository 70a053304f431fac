"""The state machine between callers and a lock service: which caller leads, which holds, which is next.

Written as steps (`distlock.engine.steps`): what stands between two yields happens under one mutex or touches
only its own waiter, so any interleaving of yields is all that can happen. The tests play them.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from functools import partial

from distlock import clock, reentrance
from distlock.backends.base import Backend, Busy, Queued
from distlock.engine import leading, loss
from distlock.engine.admission import Admission
from distlock.engine.fork import forget_in_children
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.lifting import OnLifted
from distlock.engine.process_end import may_run
from distlock.engine.refusals import log
from distlock.engine.room import Room, Rooms
from distlock.engine.sink import EngineSink
from distlock.engine.stalled import Stalled
from distlock.engine.steps import Call, Gate, Park, Steps
from distlock.engine.turns import Turns
from distlock.engine.undoing import Undoing
from distlock.errors import BackendUnavailable, Reentered, TooManyWaiters
from distlock.grant import NameGrant
from distlock.owner import Owner
from distlock.rlock import Inside

logger = logging.getLogger("distlock")

CLOSED = "The client of the lock service was closed. It holds no locks. Use a new one."


class Engine:
    def __init__(
        self,
        backend: Backend,
        *,
        ttl: float,
        max_hold: float,
        max_waiters: int | None,
        max_waiters_total: int | None,
        era: int,
        on_lost: loss.OnLost | None = None,
        on_lifted: OnLifted | None = None,
        now: Callable[[], float] = clock.now,
        threads: bool = True,
    ) -> None:
        self.backend = backend
        self.ttl = ttl
        self.era = era
        self.losses = loss.Losses(on_lost, threads)
        self.on_lifted = on_lifted
        self.now = now
        self._make_mutexes()
        self.rooms = Rooms(Admission(max_waiters, max_waiters_total))
        self.closing = False
        self.inside: Inside = {}
        self.keeper = Keeper(self, max_hold, threads)
        self.undoing = Undoing(self.keeper.wake)
        self.turns = Turns(self)
        self.stalled = Stalled(self)
        self.sink = EngineSink(self)
        backend.open(self.sink)
        forget_in_children(self)

    def _make_mutexes(self) -> None:
        self.mutex = reentrance.mutex()
        #: Whether a signal handler or a finaliser is running, and its own thread has the mutex.
        self.reentered = self.mutex._is_owned
        #: For `Lock` and `RLock`. The code that has it may be interrupted by a handler that takes it.
        self.books = threading.RLock()

    # -- acquire ---------------------------------------------------------------------------------

    def acquire(self, key: str, name: str, gate: Gate, timeout: float, ttl: float) -> Steps[NameGrant | None]:
        """Wait up to *timeout* seconds (0: not at all) for a grant, or return None."""
        if self.reentered():
            if key in self.rooms.by_key and not timeout > 0:
                return None
            raise reentrance.refusal()
        asked_at = self.now()
        deadline = asked_at + timeout
        # A caller that does not wait asks once. The backend bounds that.
        until = deadline + leading.LAST_WORDS if timeout > 0 else math.inf
        try:
            with self.mutex:
                self.undoing.catch_up()
                if self.closing:
                    raise BackendUnavailable(CLOSED)
                try:
                    waiter = self.rooms.enter(key, name, gate, timeout, asked_at)
                except TooManyWaiters as refusal:
                    self.keeper.count(refusal)
                    raise
                if waiter is not None and gate.may_stall:
                    self.stalled.watch(waiter)
            if waiter is None:
                return None
            asked = False
            while waiter.grant is None:
                if waiter.failure is not None:
                    raise BackendUnavailable(waiter.failure)
                pause = deadline - self.now()
                if pause <= 0 and (asked or timeout > 0):
                    yield from leading.leave(self, waiter, until)
                    break
                if waiter.leads:
                    answer = yield from leading.ask(self, waiter, ttl, timeout > 0, until)
                    asked = True
                    if answer is None or isinstance(answer, Busy):
                        break
                    if isinstance(answer, Queued):
                        pause = min(pause, answer.poll)
                    else:
                        continue
                if not waiter.waited:
                    leading.refuse_behind_own(self, waiter)
                    waiter.waited = True
                yield Park(gate, pause)
        except TooManyWaiters:
            raise
        except BaseException as error:
            self.forsake([key], gate, error)
            raise
        if gate.may_stall:
            with self.mutex:
                self.stalled.answered(waiter)
                if waiter.passed_over:
                    return None
        if waiter.grant is None or not waiter.grant.lost:
            return waiter.grant
        # We slept (a stopped process, a long pause) until after the end of what we were granted meanwhile.
        yield from self.release(waiter.grant, until)
        left = max(0.0, deadline - self.now())
        return (yield from self.acquire(key, name, gate, left, ttl)) if left else None

    def forsake(self, keys: Iterable[str], gate: Gate, error: BaseException) -> None:
        """The caller behind *gate* was interrupted, or the service failed: leave nothing of it behind.

        No I/O, for we may be torn down.
        """
        for key in keys:
            self.undoing.undo(self.mutex, error, partial(self.turns.abandon, key, gate, error))

    # -- release ---------------------------------------------------------------------------------

    def release(self, grant: NameGrant, until: float = math.inf) -> Steps[None]:
        """Pass the hold on to the next waiter here, or give it back to the service.

        *until*: the moment after which the caller leaves that to the keeper.
        """
        if self.reentered():
            if grant.end():
                self.let_go(grant, reentrance.refusal())
            return
        hold = grant._hold
        room = hold.room
        ours: bool | None = None
        try:
            with self.mutex:
                self.undoing.catch_up()
                if not grant.end():
                    return
                if room.hold is not hold or self.turns.pass_on(hold):
                    return
                self.turns.send_back(hold)
            try:
                ours = yield Call(self.backend.release, hold.ask, until=until)
            except Reentered:
                pass  # The keeper can.
            except BackendUnavailable as error:
                logger.warning(
                    "The lock %r will be released as soon as its lock service answers: %s", room.name, error
                )
            with self.mutex:
                self.turns.returned(hold, ours)
        except BaseException as error:
            self.let_go(grant, error)
            raise
        if ours is False:
            if self.now() >= hold.deadline:
                hold.lost = self.keeper.why_ended(hold)
            else:
                hold.lost = "the lock service had given it up before it was released"
            grant._lost_at_end = True
            self.losses.tell(grant, hold.lost)

    def let_go(self, grant: NameGrant, error: BaseException) -> None:
        """Release without I/O here: the keeper does it. For callers that *error* is tearing down."""
        self.undoing.undo(self.mutex, error, partial(self.turns.drop, grant))

    def holder(self, key: str) -> Owner | None:
        """The owner in this process that was granted *key*; None: nobody, as far as is known."""
        with self.mutex:
            room = self.rooms.by_key.get(key)
            hold = room.hold if room is not None else None
            return hold.waiter.owner if hold is not None and hold.waiter is not None else None

    def locked(self, key: str) -> bool:
        room = self.rooms.by_key.get(key)
        if room is not None and room.hold is not None:
            return True
        if self.reentered():
            raise reentrance.refusal()
        return reentrance.call(self.backend.locked, key)

    # -- loss ------------------------------------------------------------------------------------

    def lose(self, hold: Hold, why: str, retire: bool, aside: bool = True) -> None:
        """The hold is not ours any more. The waiters start anew; the grant that is out is told.

        *aside*: whether `on_lost` is called elsewhere: the threads that find losses have more to look after.
        """
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
            (self.losses.tell_aside if aside else self.losses.tell)(grant, why)

    # -- life cycle ------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back what can be given back, and stop. Waiters fail, and grants that are out become lost."""
        if self.reentered() or reentrance.is_calling():
            threading.Thread(target=self.close, name="distlock-close").start()
            return
        with self.mutex:
            self.undoing.catch_up()
            self.closing = True
            rooms = list(self.rooms.by_key.values())
            holds = [room.hold for room in rooms if room.hold is not None]
            for room in rooms:
                self.rooms.fail(room, CLOSED)
                room.ask = None
                self.rooms.settle(room)
        try:
            for hold in holds:
                self.lose(hold, "the client was closed", retire=True, aside=False)
            self.inside.clear()
            self.keeper.close()
            self.losses.join()
            reentrance.call(self.backend.close)
        finally:
            self.closing = False

    def end_with_process(self) -> None:
        """The process ends: see `distlock.engine.process_end`."""
        if not self.mutex.acquire(timeout=1.0):
            return  # The thread that has it was stopped with it. The leases end by themselves.
        try:
            self.undoing.catch_up()
            holds = list(self.keeper.holds)
            refusals = self.keeper.refusals.take()
        finally:
            self.mutex.release()
        log(refusals)
        for hold in holds:
            # A daemon thread runs on until the very end: with its lock given back there would be two inside.
            kept = hold.waiter is None or may_run(hold.waiter.owner[0])
            self.lose(hold, "the process ends", retire=not kept, aside=False)

    def has_ended(self) -> bool:
        return not self.keeper.retired

    def after_fork(self) -> None:
        """In the child: what the parent holds stays the parent's."""
        for room in self.rooms.by_key.values():
            if room.hold is not None:
                room.hold.lost = "it belongs to the parent of this forked process"
                room.hold.room = Room(room.key, room.name)
        self._make_mutexes()
        self.undoing.clear()
        self.closing = False
        self.rooms.clear()
        self.inside.clear()
        self.stalled.forget()
        self.keeper.after_fork()
        self.losses.after_fork()
        self.backend.after_fork()
