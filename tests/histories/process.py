"""One process of a history: a real engine, its callers and its maintenance thread, played event by event.

Nothing here carries out a call to the lock service: a task that is at a call gets its answer as an event.
So the state of a process depends only on the events that were played to it, and not on other processes.
"""

from __future__ import annotations

import itertools
import logging
import math
import typing
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from distlock.backends.base import (
    EXCLUSIVE,
    PERMIT,
    READ,
    Acquired,
    Busy,
    Capabilities,
    LockRequest,
    Mode,
    Queued,
)
from distlock.engine.critical_section import CriticalSection
from distlock.engine.deferred_work import Cancellations
from distlock.engine.engine import Engine
from distlock.engine.hold import Hold, NameGrant, Waiter
from distlock.engine.hold_calls import HoldCalls
from distlock.engine.renewal import Renewer
from distlock.engine.sans_io import Call, Park
from distlock.engine.wait_queue import HandedOff, WaitQueue
from distlock.errors import BackendUnavailable, LockLost, NotHeld, TooManyWaiters
from distlock.owner import Owner
from distlock.terms import Terms

__all__ = [
    "Call",
    "Cancellations",
    "CriticalSection",
    "Engine",
    "HandedOff",
    "Hold",
    "HoldCalls",
    "NameGrant",
    "Renewer",
    "Terms",
    "WaitQueue",
    "Waiter",
]

KEY = "a"
TTL = 3.0
#: Seconds for which a hold lasts that was handed off and not acknowledged.
WINDOW = 0.5
#: The time-out of the callers that have one, seconds. It is shorter than a turn.
PATIENCE = 0.02
#: What a caller does: it writes, reads, writes and goes on reading, or takes permits of a semaphore with two.
WRITES, READS, WRITES_AND_READS, ONE_PERMIT, TWO_PERMITS = "W", "R", "D", "1", "2"
MODES: dict[str, Mode] = {
    WRITES: EXCLUSIVE,
    READS: READ,
    WRITES_AND_READS: EXCLUSIVE,
    ONE_PERMIT: PERMIT,
    TWO_PERMITS: PERMIT,
}
LIMIT = 2

#: A token or a fence number is known here by how many the process had met before it.
Ordinal = int
Event = tuple[Any, ...]
Steps = Generator[Any, Any, Any]


class Interrupted(BaseException):
    """What is thrown into a caller, as a signal handler or a cancellation throws it."""


class Family(NamedTuple):
    """What the engine can see of one kind of lock service."""

    name: str
    #: Its holds end unless they are renewed; else they end with their process.
    lease: bool = True
    #: Its pushes hand a hold to the waiter, and are more than a hint.
    hands_off: bool = False
    #: A release is sent, and its answer is not awaited.
    posts: bool = False
    #: The backend notices without a call that a session has ended, and its holds with it.
    sees_end: bool = False
    #: It has locks that readers share, and semaphores.
    shared: bool = True
    #: It has a queue, and tells a waiter that its turn has come; else waiters poll.
    fair: bool = True
    #: A call that got no answer may be carried out after later ones.
    late: bool = False
    #: A hold ends with the session of its process, and so do the places in the queue.
    sessions: bool = False


class Scene(NamedTuple):
    """The callers of each process: for each caller, what it does; in lower case with a time-out."""

    callers: tuple[str, ...]
    #: Whether they are tasks of an event loop; else threads.
    tasks: bool = False
    #: Whether they begin on a push.
    on_push: bool = False


class Parker:
    """The place where a caller sleeps."""

    def __init__(self, owner: int, may_stall: bool) -> None:
        self.owner: Owner = owner, None, None
        self.may_stall = may_stall
        self.open = False

    def wake(self) -> None:
        self.open = True

    def alive(self) -> bool:
        return True


class Backend:
    """What the engine believes to be its backend. Its methods name the calls, and are never called."""

    def __init__(self, family: Family) -> None:
        self.capabilities = Capabilities(
            several_processes=True,
            lease=family.lease,
            fence=True,
            fair=family.fair,
            read=family.shared,
            permits=family.shared,
        )
        self.ended: set[str] = set()

    def open(self, sink: Any) -> None:
        self.sink = sink

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        raise NotImplementedError

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        raise NotImplementedError

    def renew(self, requests: Any) -> list[bool]:
        raise NotImplementedError

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        raise NotImplementedError

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        raise NotImplementedError

    def locked(self, key: str) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""

    def after_fork(self) -> None:
        """Nothing is inherited."""


def _post(self: Any, request: LockRequest, notify: Any, deadline: float = math.inf) -> None:
    raise NotImplementedError


def _settle(self: Any, deadline: float = math.inf) -> bool:
    raise NotImplementedError


def _downgrade(self: Any, request: LockRequest, deadline: float = math.inf) -> bool:
    raise NotImplementedError


def _acknowledge(self: Any, handed: Any, deadline: float = math.inf) -> Any:
    raise NotImplementedError


def _has_ended(self: Any, request: LockRequest) -> bool:
    return request.token in self.ended


@cache
def backend_class(family: Family) -> type[Backend]:
    """Return a class with the methods by which the engine recognises *family*."""
    members: dict[str, Any] = {}
    if family.posts:
        members |= {"post": _post, "settle": _settle}
    if family.shared:
        members["downgrade"] = _downgrade
    if family.hands_off:
        members |= {"acknowledge": _acknowledge, "window": WINDOW}
    if family.sees_end:
        members["has_ended"] = _has_ended
    # The calls are known by the names of their functions.
    for name, function in members.items():
        if callable(function):
            function.__name__ = name
    return type(f"BackendLike{family.name.title()}", (Backend,), members)


@dataclass(eq=False)
class Task:
    """A caller, or the maintenance thread, at its present step."""

    what: str
    steps: Steps
    parker: Parker
    step: Call | Park | None = None
    until: float = math.inf
    outcome: str = ""
    grant: NameGrant | None = None
    #: As what the caller believes to be inside; "": it is not.
    inside: str = ""
    #: Whether the caller has asked for the lock.
    came: bool = False

    def is_ready(self, now: float) -> bool:
        """Return whether it goes on by itself."""
        return isinstance(self.step, Park) and (self.step.parker.open or self.until <= now)  # type: ignore[attr-defined]


class LiveProcess:
    """The process after some events."""

    def __init__(self, family: Family, scene: Scene, callers: str) -> None:
        self.family = family
        self.scene = scene
        self.now = 0.0
        self.names: dict[str | int, Ordinal] = {}
        self._values: list[str | int] = []
        self._numbers = itertools.count(1000, 1000)
        self._owners = itertools.count()
        #: What is told of the answer to each release that was posted, by the name of its token.
        self.posted: dict[Ordinal, Callable[[bool | None], None]] = {}
        self.backend = backend_class(family)(family)
        self.engine = Engine(
            typing.cast(Any, self.backend),
            ttl=TTL,
            max_hold=math.inf,
            max_waiters=None,
            max_waiters_total=None,
            epoch=1,
            now=lambda: self.now,
            threads=False,
        )
        keeper = self._parker(False)
        self.engine.maintenance.parker = typing.cast(Any, keeper)
        self.tasks = [self._task(what) for what in callers]
        self.tasks.append(Task("", self._keep(keeper), keeper))
        for task in self.tasks:
            self._go(task, partial(next, task.steps))

    def _parker(self, may_stall: bool) -> Parker:
        return Parker(next(self._owners), may_stall)

    def _task(self, what: str) -> Task:
        task = Task(what, typing.cast(Any, None), self._parker(self.scene.tasks))
        task.steps = self._visit(task)
        return task

    def _keep(self, parker: Parker) -> Steps:
        while True:
            pause = yield from self.engine.maintenance.tick()
            yield Park(parker, pause)

    def _visit(self, task: Task) -> Steps:
        kind = task.what.upper()
        mode, permits = MODES[kind], 2 if kind == TWO_PERMITS else 1
        limit = LIMIT if mode == PERMIT else 1
        terms = Terms(TTL, math.inf, on_push=self.scene.on_push, mode=mode, limit=limit, permits=permits)
        timeout = math.inf if task.what == kind else PATIENCE
        yield Park(task.parker, 0.0)
        task.came = True
        try:
            grant = yield from self.engine.acquire(KEY, KEY, task.parker, timeout, terms)
        except (BackendUnavailable, TooManyWaiters) as error:
            task.outcome = "failed" if isinstance(error, BackendUnavailable) else "refused"
            return
        if grant is None:
            task.outcome = "timed out"
            return
        task.grant, task.inside = grant, mode
        try:
            yield Park(self._parker(False), 0.0)
            if self.scene.on_push:
                # As `Grant.check` does, before a COMMIT.
                try:
                    yield from self.engine.hold_calls.acknowledge(grant._hold)
                except BackendUnavailable:
                    pass
                yield Park(self._parker(False), 0.0)
            if kind == WRITES_AND_READS:
                # The lock service lets others read before we hear of it.
                task.inside = READ
                try:
                    yield from grant._downgrade()
                    yield Park(self._parker(False), 0.0)
                except (BackendUnavailable, LockLost, NotHeld):
                    pass
        except BaseException as stop:
            task.inside = ""
            grant._abandon(stop)
            raise
        task.inside = ""
        yield from grant._release()
        task.outcome = "served"

    # -- events ----------------------------------------------------------------------------------

    def play(self, event: Event) -> None:
        """Play *event*. Its tokens and numbers are names."""
        what, *rest = event
        if what == "tick":
            self.now += rest[0]
        elif what == "push":
            self._hear(*rest)
        elif what == "reply":
            told = self.posted.pop(rest[0])
            if rest[1] is not True:
                told(rest[1])
        else:
            self._resume(self.tasks[rest[0]], what, rest[1:])

    def _hear(self, kind: str, token: Ordinal, number: Ordinal, sent: float) -> None:
        sink = self.backend.sink
        if kind == "handed_off":
            sink.handed_off(KEY, self._token(token), self._number(number), self.now + sent)
        elif kind == "lost":
            sink.lost(KEY, self._token(token))
        elif kind == "ended":
            self.backend.ended.add(self._token(token))
        elif kind == "missed":
            sink.missed_notifications()
        else:
            sink.notified(KEY)

    def _resume(self, task: Task, what: str, rest: list[Any]) -> None:
        steps, step = task.steps, task.step
        if isinstance(step, Call):
            step.over = True
            if what != "hear" and self.family.late and step.function.__name__ == "request":
                step.arguments[0].unanswered += 1
        if what == "go":
            assert isinstance(step, Park)
            step.parker.open = False  # type: ignore[attr-defined]
            self._go(task, lambda: steps.send(None))
        elif what == "hear":
            answer = self._answer(rest[0])
            self._go(task, lambda: steps.send(answer))
        elif what == "fail":
            self._go(task, lambda: steps.throw(BackendUnavailable("no answer came (a planted fault)")))
        elif what == "throw":
            self._go(task, lambda: steps.throw(Interrupted()))
        else:
            steps.close()
            task.step, task.outcome = None, task.outcome or "dropped"

    def _go(self, task: Task, go: Callable[[], Call | Park]) -> None:
        try:
            task.step = go()
        except StopIteration:
            task.step = None
        except Interrupted:
            task.step, task.outcome = None, "interrupted"
        if isinstance(task.step, Park):
            task.until = self.now + task.step.timeout
        elif isinstance(task.step, Call):
            for one, _ in self.asked_for(task.step):
                self.name_of(one.token)
            if task.step.function.__name__ == "post":
                request, told = task.step.arguments[:2]
                self.posted[self.name_of(request.token)] = told

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, tuple) and answer:
            kind, *rest = answer
            if kind == "acquired":
                number, ttl, followed = rest
                return Acquired(self._number(number), ttl, followed)
            if kind == "queued":
                return Queued(rest[0])
            if kind == "busy":
                return Busy()
            return list(rest)
        return answer

    # -- names -----------------------------------------------------------------------------------

    def name_of(self, value: str | int) -> Ordinal:
        """Return the name of a token or a number."""
        if value not in self.names:
            self.names[value] = len(self._values)
            self._values.append(value)
        return self.names[value]

    def is_token(self, name: Ordinal) -> bool:
        return isinstance(self._values[name], str)

    def _token(self, name: Ordinal) -> str:
        while name >= len(self._values):
            self.name_of(f"of another {len(self._values)}")
        return typing.cast(str, self._values[name])

    def _number(self, name: Ordinal) -> int:
        while name >= len(self._values):
            self.name_of(next(self._numbers))
        return typing.cast(int, self._values[name])

    @staticmethod
    def asked_for(call: Call) -> list[tuple[LockRequest, int | None]]:
        """Return the requests that *call* is about, each with the number that it is called with, if any."""
        given = call.arguments[0] if call.arguments else None
        if isinstance(given, LockRequest):
            return [(given, None)]
        if isinstance(given, list):
            return [one if isinstance(one, tuple) else (one, None) for one in given]
        return []


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing, and remember what protocols ask for, which Python 3.11 lists anew each time."""
    members = typing._get_protocol_attrs  # type: ignore[attr-defined]
    typing._get_protocol_attrs = cache(members)  # type: ignore[attr-defined]
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        typing._get_protocol_attrs = members  # type: ignore[attr-defined]
