"""The attempts of a soak: each takes one lock of one kind, and notes what it sees.

An attempt is a generator of steps, which `drive` plays in a thread and `adrive` in a task.
Batches are left out, because only the faces of the web frameworks make them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import distlock
from tests.soak.notes import NAMES_IN_FILES, Kind

if TYPE_CHECKING:
    from tests.soak.worker import Worker

#: How long callers wait for a lock, seconds. 0 asks once. Those that want several names may hold some of them
#: while they wait for the others, so they wait less.
TIMEOUTS, SHORT_TIMEOUTS = (0.0, 0.1, 1.0, 8.0, 8.0, 20.0), (0.0, 0.1, 1.0)
#: A caller that has waited in vain for so many seconds, or longer, looks at the lock service.
LONG_WAIT = 8.0
#: How often an owner may enter its re-entrant lock.
DEPTH = 3
#: For how many seconds a lock is held whose release nobody requests, and the pause between two looks.
UNASKED, GLANCE = 12.0, 0.05
#: Which share of the locks is held for so long that it has to be renewed, and how often such a holder looks.
LONG_HOLDS, LONG_LOOKS = 0.004, 50
#: For how many seconds a caller lets a lock service be that is not available.
AWAY = 0.05
#: The name of the locks that are held until their release is requested, and of those that a crowd wants.
ASKED, CROWDED = "asked", "crowd"


@dataclass(frozen=True, slots=True)
class Step:
    """Something that may take time, in a thread and in a task."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


Steps = Generator[Step, Any, None]


def drive(steps: Steps) -> None:
    """Play *steps* in this thread. They get the errors of their steps."""
    try:
        step = next(steps)
        while True:
            try:
                answer = step.run()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration:
        return


async def adrive(steps: Steps) -> None:
    """Play *steps* in this task. They get the errors of their steps."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await step.arun()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration:
        return


def pause(seconds: float) -> Step:
    return Step(lambda: threading.Event().wait(seconds), lambda: asyncio.sleep(seconds))


async def _check_at_once(grant: distlock.Grant) -> None:
    """Check *grant* in a task, which does not begin before its lock is confirmed. It asks nobody."""
    grant.check()


class Attempt:
    """One attempt of one caller. *inside*: the attempt of the same caller around it, on the same name."""

    def __init__(
        self,
        worker: Worker,
        caller: str,
        choices: random.Random,
        kind: Kind,
        inside: Attempt | None = None,
    ) -> None:
        self._worker, self._notes, self._choices = worker, worker.notes, choices
        self._kind, self._caller = kind, caller
        self._depth: int = 0 if inside is None else inside._depth + 1
        self._id = f"{worker.number()}"
        limit = choices.choice((2, 2, 3)) if kind == "permit" else 0
        permits = choices.randint(1, 2) if kind == "permit" else 1
        self.names = inside.names if inside is not None else self._draw_names()
        self._lock = self._make(limit, permits)
        several = kind in {"cart", "multi"}
        self._timeout = 0.0 if inside else choices.choice(SHORT_TIMEOUTS if several else TIMEOUTS)
        self._grant: distlock.Grant | None = None
        self._about = {
            "id": self._id,
            "caller": caller,
            "names": self.names,
            "kind": kind,
            "permits": permits,
            "limit": limit,
            "depth": self._depth,
        }

    def _draw_names(self) -> tuple[str, ...]:
        choices, names = self._choices, [f"n{number}" for number in range(self._worker.orders.names)]
        if self._kind == "cart":
            # Nobody takes the first name together with others, so that it is known when that one is free.
            return tuple(choices.sample(names[1:], 2))
        if self._kind == "multi":
            return choices.choice(names[1:]), choices.choice(NAMES_IN_FILES)
        if self._kind in {"asked", "crowd"}:
            return (ASKED if self._kind == "asked" else CROWDED,)
        return (choices.choice(NAMES_IN_FILES if self._kind == "second" else names),)

    def _make(self, limit: int, permits: int) -> Any:
        locks, second, names = self._worker.locks, self._worker.second, self.names
        make: dict[Kind, Callable[[], Any]] = {
            "lock": lambda: locks.lock(*names),
            "asked": lambda: locks.lock(*names),
            "crowd": lambda: locks.lock(*names),
            "cart": lambda: locks.lock(*names),
            "push": lambda: locks.lock(*names, on_push=True),
            "rlock": lambda: locks.rlock(*names),
            "read": lambda: locks.read_lock(*names),
            "write": lambda: locks.write_lock(*names),
            "permit": lambda: locks.semaphore(names[0], limit=limit, permits=permits),
            "second": lambda: second.lock(*names),
            "multi": lambda: distlock.multi_lock(locks.lock(names[0]), second.lock(names[1])),
        }
        return make[self._kind]()

    def steps(self) -> Steps:
        """Take the lock, use it, and release it."""
        yield from self._acquire()
        if self._grant is None:
            return
        try:
            yield from self._use()
        finally:
            yield from self._release()

    def _acquire(self) -> Steps:
        lock, seconds = self._lock, self._timeout
        self._notes.note("asked", **self._about)
        try:
            grant = yield Step(lambda: lock.acquire(timeout=seconds), lambda: lock.aacquire(timeout=seconds))
        except BaseException as error:
            self._notes.note("refused", id=self._id, how=type(error).__name__, why=f"{error}")
            if not isinstance(error, distlock.LockError):
                raise
            if not isinstance(error, distlock.BackendUnavailable):
                self._notes.note("error", what=f"{type(error).__name__}: {error}")
            yield pause(AWAY)
            return
        if grant is None:
            self._notes.note("refused", id=self._id, how="timeout")
            if seconds >= LONG_WAIT:
                yield from self._look_at_lock_service()
            return
        now, lost = time.monotonic(), grant.lost
        fences = {} if self._kind == "permit" else dict(grant.fences)
        self._notes.note_at(now, "granted", id=self._id, fences=fences, lost=lost)
        self._grant = grant

    def _look_at_lock_service(self) -> Steps:
        """Note who has the lock and who waits for it by the lock service, for the reader of a violation."""
        second = self._kind == "second"
        locks, name = self._worker.second if second else self._worker.locks, self.names[0]
        kind: Literal["lock", "semaphore"] = "semaphore" if self._kind == "permit" else "lock"
        with suppress(distlock.LockError):
            state = yield Step(lambda: locks.inspect(name, kind), lambda: locks.ainspect(name, kind))
            self._notes.note("looked", id=self._id, why=f"{state}")

    def _use(self) -> Steps:
        choices = self._choices
        yield from self._hold()
        if self._kind == "push" and choices.random() < 0.5:
            yield from self._check()
        if inner := self._inner():
            yield from inner.steps()
            yield from self._hold()
        if self._kind == "write" and choices.random() < 0.5:
            yield from self._downgrade()
            yield from self._hold()

    def _hold(self) -> Steps:
        choices = self._choices
        is_long = choices.random() < LONG_HOLDS
        for _ in range(choices.randrange(LONG_LOOKS) if is_long else choices.randrange(3)):
            yield pause(GLANCE if is_long else choices.random() * 0.01)
            self.look()

    def _inner(self) -> Attempt | None:
        """Return an attempt of the same caller on the same name, which must not have to wait; None: none."""
        kinds: dict[Kind, Kind] = {"rlock": "rlock", "read": "read", "write": "read"}
        if self._kind not in kinds or self._depth == DEPTH or self._choices.random() < 0.5:
            return None
        return Attempt(self._worker, self._caller, self._choices, kinds[self._kind], inside=self)

    def _check(self) -> Steps:
        """Have a hand-off by push confirmed."""
        grant = self._grant
        assert grant is not None
        try:
            yield Step(grant.check, lambda: _check_at_once(grant))
        except (distlock.LockLost, distlock.BackendUnavailable):
            return  # The release notes a loss.
        self.look()

    def _downgrade(self) -> Steps:
        grant = self._grant
        assert grant is not None
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "downgrading", id=self._id, lost=lost)
        try:
            yield Step(grant.downgrade, grant.adowngrade)
        except (distlock.LockLost, distlock.BackendUnavailable):
            return
        self.look()

    def look(self) -> None:
        """Note that the lock is held now, if it is not lost."""
        assert self._grant is not None
        now = time.monotonic()
        if not self._grant.lost:
            self._notes.note_at(now, "sure", id=self._id)

    def _release(self) -> Steps:
        grant, lock = self._grant, self._lock
        assert grant is not None
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "releasing", id=self._id, lost=lost)
        # All entries of a re-entrant lock have one grant, so its owner leaves it by the lock.
        over = lock if self._kind == "rlock" else grant
        yield Step(over.release, over.arelease)
        self._notes.note("released", id=self._id)


class AskedAttempt(Attempt):
    """An attempt to hold a lock until its release is requested."""

    def __init__(self, worker: Worker, caller: str, choices: random.Random) -> None:
        super().__init__(worker, caller, choices, "asked")

    def _use(self) -> Steps:
        grant = self._grant
        assert grant is not None
        until = time.monotonic() + UNASKED
        while time.monotonic() < until and not self._worker.over.is_set() and not grant.lost:
            if grant.release_requested:
                self._notes.note("wanted", id=self._id)
                return
            self.look()
            yield pause(GLANCE)


def request_release(worker: Worker, caller: str) -> None:
    """Request the release of the lock that is held until then, and note the answer."""
    about = {"id": f"{worker.number()}", "caller": caller, "name": ASKED}
    worker.notes.note("requests", **about)
    try:
        answer = worker.locks.request_release(ASKED)
    except distlock.BackendUnavailable:
        return  # Nobody knows whether the holder will learn it.
    worker.notes.note("requested", answer=answer, **about)
