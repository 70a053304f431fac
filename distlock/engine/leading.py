"""What the head of a waiting room says to the lock service, on behalf of all in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distlock.backends.base import Ask, Busy, Held, Queued
from distlock.engine.hold import SPAN
from distlock.engine.room import Room, Waiter
from distlock.engine.steps import Call, Steps
from distlock.errors import BackendUnavailable
from distlock.reentrance import is_parked, refusal

if TYPE_CHECKING:
    from distlock.engine.machine import Engine

#: How much longer than the caller waits a call to the service may take, seconds: an answer that is under way
#: is awaited, and a place in the queue is given up.
LAST_WORDS = 0.25


def ask(
    engine: Engine, waiter: Waiter, ttl: float, patient: bool, until: float
) -> Steps[Held | Queued | Busy | None]:
    """The service's answer. None if it is too late for one, and the service has said to wait before."""
    room = waiter.room
    told_to_wait = room.ask is not None
    mine = room.ask
    if mine is None:
        mine = room.ask = Ask(room.key, os.urandom(16).hex(), ttl, SPAN, patient)
    sent = engine.now()
    try:
        waiter.call = Call(engine.backend.request, mine, until=until)
        answer: Held | Queued | Busy = yield waiter.call
    except BackendUnavailable:
        if engine.now() < until:
            raise
        # That it is too late for us is no outage for those who have more time.
        with engine.mutex:
            if waiter.passed_over:
                return None
            if waiter.failure is not None:
                engine.keeper.retire(mine)
                raise
            give_up(engine, waiter)
        if not told_to_wait:
            raise
        return None
    with engine.mutex:
        if waiter.failure is not None:
            # The client was closed meanwhile.
            engine.keeper.retire(mine)
        elif waiter.passed_over:
            _leave_behind(engine, room, mine)
            return None
        elif isinstance(answer, Held):
            engine.turns.take(room, mine, answer, sent)
        elif isinstance(answer, Busy):
            room.ask = None
            engine.rooms.leave(waiter)
            engine.rooms.settle(room)
    return answer


def leave(engine: Engine, waiter: Waiter, until: float) -> Steps[None]:
    """Out of patience. If it was granted in the same moment, that is decided here, or by the lock service."""
    room = waiter.room
    with engine.mutex:
        engine.undoing.catch_up()
        if waiter.grant is not None or waiter.failure is not None or waiter.passed_over:
            return
        if not waiter.leads or room.ask is None or len(room.queue) > 1:
            give_up(engine, waiter)
            return
        mine = room.ask
    sent = engine.now()
    try:
        waiter.call = Call(engine.backend.cancel, mine, until=until)
        held = yield waiter.call
        answer = None
        # Ours after all? cancel() kept it and says no more, so request() tells what it is worth.
        if held:
            waiter.call = Call(engine.backend.request, mine, until=until)
            answer = yield waiter.call
    except BackendUnavailable:
        if engine.now() < until:
            raise
        with engine.mutex:
            if waiter.failure is not None:
                engine.keeper.retire(mine)
            elif not waiter.passed_over:
                give_up(engine, waiter)
        return
    with engine.mutex:
        if waiter.failure is not None:
            engine.keeper.retire(mine)
            return
        if waiter.passed_over:
            _leave_behind(engine, room, mine)
            return
        if isinstance(answer, Held):
            engine.turns.take(room, mine, answer, sent)
        if waiter.grant is None:
            room.ask = None
            engine.rooms.give_up(waiter, engine.now())


def refuse_behind_own(engine: Engine, waiter: Waiter) -> None:
    """A signal handler must not wait behind the thread that it has interrupted. Raises `Reentered`."""
    if is_parked():
        with engine.mutex:
            if any(one.owner == waiter.owner and one is not waiter for one in waiter.room.queue):
                raise refusal()


def _leave_behind(engine: Engine, room: Room, mine: Ask) -> None:
    """The answer came too late for the caller that asked. It is for others of the room, or for nobody."""
    if room.ask is not mine and (room.hold is None or room.hold.ask is not mine):
        engine.keeper.retire(mine)


def give_up(engine: Engine, waiter: Waiter) -> None:
    """Leave without a word to the service: what it knows of us is for the next in line, or the keeper."""
    room = waiter.room
    if waiter.leads and room.ask is not None and len(room.queue) == 1:
        engine.keeper.retire(room.ask)
        room.ask = None
    engine.rooms.give_up(waiter, engine.now())
