"""The state machine between callers and a lock service: which caller leads, which holds, which is next.

Written as steps (`distlock.engine.steps`): what stands between two yields happens under one mutex or touches
only its own waiter, so any interleaving of yields is all that can happen. The tests play them.

This is the whole of it: its parts, and its life. The other files have one part each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from distlock import clock, reentrance
from distlock.backends.base import Backend, refuse_lacking
from distlock.backends.inspectable import Breaks, Inspectable, Row, Seen, Sight
from distlock.backends.optional import Posts
from distlock.engine.acknowledging import Acknowledging
from distlock.engine.acquiring import Acquiring
from distlock.engine.admission import Admission
from distlock.engine.announcing import Announcing, row_of
from distlock.engine.answers import SOON
from distlock.engine.critical_section import CriticalSection
from distlock.engine.downgrading import Downgrading
from distlock.engine.fork import forget_in_children, hear_of_forks
from distlock.engine.hold import Hold
from distlock.engine.joining import Joining
from distlock.engine.keeper import Keeper
from distlock.engine.leading import Leading
from distlock.engine.lifting import Lifting, OnLifted
from distlock.engine.loss import Losses, OnLost
from distlock.engine.name_grant import NameGrant
from distlock.engine.process_end import end_with_process, may_run
from distlock.engine.readers import Readers
from distlock.engine.refusals import log
from distlock.engine.releasing import Releasing
from distlock.engine.revocation import Revocation
from distlock.engine.room import Rooms
from distlock.engine.sink import EngineSink
from distlock.engine.stalled import Stalled
from distlock.engine.turns import Turns
from distlock.errors import BackendUnavailable
from distlock.grant import OnReleaseRequested
from distlock.owner import Owner
from distlock.terms import Terms

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
        era: int,
        on_lost: OnLost | None = None,
        on_lifted: OnLifted | None = None,
        on_release_requested: OnReleaseRequested | None = None,
        on_reconnected: Callable[[], None] = lambda: None,
        now: Callable[[], float] = clock.now,
        threads: bool = True,
    ) -> None:
        self.backend = backend
        #: Of callers that were told none.
        self.terms = Terms(ttl, max_hold)
        self.era = era
        self.now = now
        self.section = CriticalSection(wake=lambda: self.keeper.thread.wake())
        self.rooms = Rooms(
            Admission(max_waiters, max_waiters_total), retire=lambda ask: self.keeper.retire(ask)
        )
        self.losses = Losses(on_lost, threads)
        self.stalled = Stalled(
            give_up=lambda waiter: self._leading.give_up(waiter), drop=lambda grant: self._turns.drop(grant)
        )
        self.keeper = Keeper(
            self.section,
            backend,
            now,
            self.stalled,
            self.lose,
            self.end_hung,
            announcing := Announcing(self.section, backend, now, self.rooms),
            begun=lambda: end_with_process(self),
            threads=threads,
        )
        #: What was last seen of a key that is waited for here.
        self.seen = announcing.holders.seen
        self.announcing = announcing
        readers = Readers(self, self.rooms, self.keeper, era)
        self._turns: Turns = Turns(self, self.rooms, self.keeper, readers, era)
        self._leading: Leading = Leading(self.section, backend, now, self.rooms, self._turns, self.keeper)
        acknowledging = Acknowledging(self.section, backend, now, self._turns, self.lose)
        releasing = Releasing(
            self.section, backend, now, self._turns, self.keeper, acknowledging, self.losses
        )
        self._acquiring = Acquiring(
            self.section,
            backend,
            now,
            self.rooms,
            self._turns,
            readers,
            self._leading,
            acknowledging,
            self.stalled,
            self.keeper,
            releasing,
        )
        lifting = Lifting(self.section, backend, now, acknowledging, self.lose, on_lifted)
        self.acquire, self.forsake = self._acquiring.acquire, self._acquiring.forsake
        self.release, self.let_go = releasing.release, releasing.let_go
        self.lift = lifting.lift
        downgrading = Downgrading(
            self.section, backend, now, self._turns, readers, self.keeper, acknowledging, self.lose
        )
        self.downgrade = downgrading.downgrade
        self.acknowledge = acknowledging.acknowledge
        joining = Joining(self.section, now, self.rooms)
        self.is_followed, self.take_along = joining.is_followed, joining.take_along
        self.why_ended = self.keeper.why_ended
        revocation = Revocation(self.section, backend, self.rooms, on_release_requested, threads)
        self.request_release = revocation.request
        self.sink = EngineSink(self.section, self.rooms, self.keeper, self.lose, revocation, on_reconnected)
        backend.open(self.sink)
        forget_in_children(self)
        hear_of_forks(self)

    # -- questions -------------------------------------------------------------------------------

    def is_holder(self, key: str, owner: Owner) -> bool:
        """Whether *owner*, of this process, was granted *key*, as far as is known."""
        with self.section.mutex:
            room = self.rooms.by_key.get(key)
            return room is not None and any(owner in hold.owners for hold in room.holds)

    def refuse_upgrade(self, names: Mapping[str, str]) -> None:
        """Raise `ConfigurationError` if the caller reads one of *names*, by key, and so can't write it."""
        with self.section.mutex:
            for key, name in names.items():
                self.rooms.refuse_upgrade(key, name)

    def grants(self) -> list[NameGrant]:
        """What is out, and not lost."""
        with self.section.mutex:
            holds = [hold for room in self.rooms.by_key.values() for hold in room.holds]
            out = [grant for hold in holds for grant in hold.grants]
        return [grant for grant in out if not (grant.released or grant.lost)]

    def locked(self, key: str) -> bool:
        room = self.rooms.by_key.get(key)
        if room is not None and room.holds:
            return True
        if self.section.reentered():
            raise reentrance.refusal()
        return reentrance.call(self.backend.locked, key)

    def inspect(self, key: str) -> Sight:
        """What the lock service shows of *key*. Raises `ConfigurationError` where it shows nothing."""
        sight: Sight = reentrance.call(self._inspectable().inspect, key)
        return sight

    @property
    def process(self) -> str:
        """How the lock service calls this process."""
        return self._inspectable().process

    def announce_soon(self) -> None:
        """There is more to say of this process than before: see `Announcing.more`."""
        with self.section.mutex:
            self.keeper.announce_soon()

    def row(self, key: str) -> Row | None:
        """What this process could say of *key* just now, however short it has lasted. Asks nobody."""
        room, now = self.rooms.by_key.get(key), self.now()
        return None if room is None else row_of(room, now, time.time() - now, moment=0.0)

    def announced(self, before: str) -> Iterator[Seen]:
        """What all processes say of the keys that begin with *before*."""
        return self._inspectable().announced(before)

    def break_hold(self, key: str, number: int) -> bool:
        """See `distlock.backends.inspectable.Breaks`. Raises `ConfigurationError` where nobody breaks."""
        backend = self._inspectable()
        refuse_lacking(backend, backend.capabilities, "breaks", "A break")
        assert isinstance(backend, Breaks)
        broken: bool = reentrance.call(backend.break_hold, key, number)
        return broken

    def _inspectable(self) -> Inspectable:
        if self.section.reentered():
            raise reentrance.refusal()
        backend = self.backend
        refuse_lacking(backend, backend.capabilities, "inspect", "A look at the locks")
        assert isinstance(backend, Inspectable)
        return backend

    # -- life cycle ------------------------------------------------------------------------------

    def lose(self, hold: Hold, why: str, retire: bool, aside: bool = True) -> None:
        """See `distlock.engine.loss.Lose`."""
        with self.section.mutex:
            lost = self._turns.lose(hold, why, retire)
        for grant in lost:
            (self.losses.tell_aside if aside else self.losses.tell)(grant, why)

    def end_hung(self, hold: Hold) -> None:
        """Readers that hang are lost, and told, without those that share their hold."""
        with self.section.mutex:
            hung = self._turns.end_hung(hold)
        for grant in hung:
            self.losses.tell_aside(grant, grant.why_lost or "")

    def close(self, all_lost: Callable[[], None] = lambda: None) -> None:
        """Give back what can be given back, and stop. Waiters fail, and grants that are out become lost.

        *all_lost*: called when they are, and before anybody is let in again.
        """
        if self.section.reentered() or reentrance.is_calling():
            threading.Thread(target=self.close, args=(all_lost,), name="distlock-close").start()
            return
        with self.section.mutex:
            self.section.catch_up()
            self._acquiring.closed = CLOSED
            holds = self.rooms.close(CLOSED)
        try:
            for hold in holds:
                self.lose(hold, "the client was closed", retire=True, aside=False)
            all_lost()
            self.keeper.close()
            self.losses.join()
            reentrance.call(self.backend.close)
        finally:
            self._acquiring.closed = None

    def end_with_process(self) -> None:
        """The process ends: see `distlock.engine.process_end`."""
        if not self.section.mutex.acquire(timeout=1.0):
            return  # The thread that has it was stopped with it. The leases end by themselves.
        try:
            self.section.catch_up()
            holds = list(self.keeper.holds)
            refusals = self.keeper.refusals.take()
            if self.keeper.answers.awaited:
                self.keeper.await_answer(within=0.0)
        finally:
            self.section.mutex.release()
        log(refusals)
        for hold in holds:
            # A daemon thread runs on until the very end: with its lock given back there would be two inside.
            owners = hold.owners
            kept = not owners or any(may_run(thread) for thread, *_ in owners)
            self.lose(hold, "the process ends", retire=not kept, aside=False)

    def has_ended(self) -> bool:
        return not (self.keeper.retired or self.keeper.answers.awaited)

    def before_fork(self) -> None:
        """What was given back is free when the child asks."""
        if not self.keeper.answers.awaited or self.section.reentered() or reentrance.is_calling():
            return
        if isinstance(self.backend, Posts):
            with suppress(BackendUnavailable):
                reentrance.call(self.backend.settle, self.now() + SOON)

    def after_fork(self) -> None:
        """In the child: what the parent holds stays the parent's."""
        self.rooms.after_fork()
        self.section.after_fork()
        self._acquiring.closed = None
        self.stalled.forget()
        self.keeper.after_fork()
        self.losses.after_fork()
        self.backend.after_fork()
