"""What a process remembers, as a key: processes with equal keys go on alike.

All that the engine's objects and the frames of its generators refer to is written down, except what `_FIELDS`
and `_LOCALS` leave out. Moments count from now. Tokens and fence numbers get names in the order in which they
are met, so that it does not matter how often something was drawn before.
"""

from __future__ import annotations

import copy
import dis
import itertools
import math
from collections import deque
from functools import cache, partial
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

from distlock.backends.base import LockRequest
from tests.histories.process import (
    Call,
    HandedOff,
    LiveProcess,
    NameGrant,
    Ordinal,
    Parker,
    Task,
    Waiter,
    WaitQueue,
)

#: No moment before that makes a difference: it is longer ago than two leases.
LONG_AGO = -10.0
#: How a field is written down. VALUE: as it is. OBJECT: with all that it refers to. MOMENT: counted from now.
#: END: so, too, but what is over is over, however long ago. NAMED: a token or a number.
VALUE, OBJECT, MOMENT, END, NAMED = "value", "object", "moment", "end", "named"

#: The fields that count. Left out are those for admission, the status, the log and `max_hold`, which have no
#: limits here, and those that are computed from others.
_FIELDS: dict[str, dict[str, str]] = {
    "Waiter": {
        "parker": OBJECT,
        "deadline": END,
        "asks_once": VALUE,
        "leads": VALUE,
        "waited": VALUE,
        "grant": OBJECT,
        "removed_by_others": VALUE,
    },
    "Hold": {
        "queue": OBJECT,
        "request": OBJECT,
        "first_number": NAMED,
        "used": VALUE,
        "lost": OBJECT,
        "grant": OBJECT,
        "waiter": OBJECT,
        "release_requested": VALUE,
        "readers": OBJECT,
        "first_reader_ends": END,
        "others_wait": VALUE,
        "downgrade_request": OBJECT,
        "releasing": VALUE,
        "due": END,
        "acknowledged": VALUE,
        "turn_ends": END,
        "renewed": MOMENT,
        "period": VALUE,
        "lease_ends": END,
    },
    "LockRequest": {
        "token": NAMED,
        "wait": VALUE,
        "mode": VALUE,
        "limit": VALUE,
        "permits": VALUE,
        "ttl": VALUE,
    },
    "WaitQueue": {
        "waiters": OBJECT,
        "request": OBJECT,
        "queued": OBJECT,
        "handed_off": OBJECT,
        "busy": VALUE,
        "hold": OBJECT,
        "shared": OBJECT,
    },
    "HandedOff": {"token": NAMED, "number": NAMED, "sent": MOMENT},
    "Acquired": {"number": NAMED, "ttl": VALUE, "followed": VALUE},
    "Terms": {"mode": VALUE, "limit": VALUE, "permits": VALUE, "on_push": VALUE},
    "Queued": {"poll": VALUE},
    "Busy": {},
    "_Cancellation": {"request": OBJECT, "next_try": END, "give_up": END, "again": VALUE},
}

#: The local variables of generators that are moments or numbers. All that the code may still read count.
_LOCALS = {"until": END, "sent": MOMENT, "now": MOMENT, "number": NAMED, "numbers": NAMED}
#: Local variables that are written down elsewhere.
_ELSEWHERE = {"self", "task"}


class Description:
    """The key of *live* with its callers in *order*, and the names in the order in which they are met."""

    def __init__(self, live: LiveProcess, order: tuple[int, ...]) -> None:
        self._now = live.now
        self._live = live
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        self.names: list[Ordinal] = []
        self._met: dict[Ordinal, int] = {}
        engine = live.engine
        self._parkers = {id(live.tasks[number].parker): place for place, number in enumerate(order)}
        parts: list[object] = [self._task(live.tasks[number]) for number in order]
        parts.append([self._any(queue) for queue in engine.queues.by_key.values()])
        parts.append(self._pace(live))
        parts.append(engine.queues.waiting)
        parts.append([self._any(hold) for hold in engine.renewer.holds])
        renewer = engine.renewer
        parts.append((renewer._all_due, renewer.failed_call_took and self._moment(renewer._failed_at)))
        parts.append([self._any(one) for one in engine.cancellations._pending])
        # Holds that are due at the same moment are renewed in the order in which their checks were planned.
        checks = sorted(renewer._planned_checks, key=lambda check: check[:2])
        parts.append(
            [self._any(hold) for due, _, hold in checks if hold.due == due and hold in renewer.holds]
        )
        parts.append(self._end(engine._refusals._due))
        replies = engine.replies
        parts.append((self._end(replies._due), replies._reading))
        parts.append(self._end(engine.maintenance.wakes_at))
        parts.append([self._any(cleanup) for cleanup in engine.section.cleanups])
        stalled: dict[Waiter, WaitQueue] = engine._stalled._watched
        parts.append([(self._any(waiter), waiter.is_calling) for waiter in stalled])
        posted = sorted(live.posted.items(), key=self._place)
        parts.append([(self._named(name), self._any(told)) for name, told in posted])
        ended = {live.names[token] for token in live.backend.ended if token in live.names}
        parts.append(sorted(self._met[name] for name in ended if name in self._met))
        self.key = repr(parts)

    def _place(self, posted: tuple[Ordinal, object]) -> tuple[float, str]:
        """Return the place of a release whose answer has not come, whichever was posted first."""
        name, told = posted
        alone = copy.copy(self)
        alone._seen, alone._kept, alone.names, alone._met = {}, [], [], {}
        return self._met.get(name, math.inf), repr(alone._any(told))

    def _pace(self, live: LiveProcess) -> object:
        """Return what may refuse a caller with a time-out that has not come yet."""
        if not any(task.what.islower() and not task.came for task in live.tasks):
            return None
        queues = live.engine.queues
        return (
            [
                (self._moment(queue.since), queue.granted, queue.pace and self._paced(queue.pace))
                for queue in queues.by_key.values()
            ],
            [self._paced(pace) for pace in queues.admission.remembered.values()],
        )

    def _paced(self, pace: Any) -> object:
        return self._any([*pace._gaps]), self._any(pace.in_vain), self._moment(pace.noted)

    def _task(self, task: Task) -> object:
        step: object = None
        if isinstance(task.step, Call):
            about = self._live.asked_for(task.step)
            step = (
                task.step.function.__name__,
                [(self._any(one), self._numbered(number)) for one, number in about],
            )
        elif task.step is not None:
            step = self._end(task.until), self._any(task.step.parker)
        grant = self._any(task.grant) if task.inside else None
        return task.what, task.outcome, task.inside, grant, step, task.parker.open, self._frames(task.steps)

    def _frames(self, steps: Any) -> object:
        """Return where each generator of *steps* stands, and its local variables."""
        found = []
        while isinstance(steps, GeneratorType) and steps.gi_frame is not None:
            frame = steps.gi_frame
            if frame.f_lasti >= 0:
                read = still_read(steps.gi_code, frame.f_lasti)
                values = [
                    (name, self._by(_LOCALS.get(name, OBJECT), value))
                    for name, value in frame.f_locals.items()
                    if name in read
                ]
                found.append((steps.gi_code.co_qualname, frame.f_lasti, values))
            steps = steps.gi_yieldfrom
        return found

    def _by(self, how: str, value: Any) -> object:
        if how in (MOMENT, END) and not isinstance(value, float):
            return self._any(value)
        if how == MOMENT:
            return self._moment(value)
        if how == END:
            return self._end(value)
        if how == NAMED and isinstance(value, list):
            return [self._by(how, one) for one in value]
        if how == NAMED:
            return self._named(self._live.name_of(value))
        return value if how == VALUE else self._any(value)

    def _moment(self, value: float) -> float:
        return value if math.isinf(value) else max(LONG_AGO, round(value - self._now, 6))

    def _end(self, value: float) -> float:
        return value if math.isinf(value) else max(0.0, round(value - self._now, 6))

    def _named(self, name: Ordinal) -> int:
        if name not in self._met:
            self._met[name] = len(self.names)
            self.names.append(name)
        return self._met[name]

    def _numbered(self, number: int | None) -> int | None:
        return None if number is None else self._named(self._live.name_of(number))

    def _any(self, value: Any) -> object:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return round(value, 6)
        if isinstance(value, Parker):
            return "parker", self._parkers.get(id(value), -1)
        if isinstance(value, BaseException):
            return type(value).__name__
        if isinstance(value, tuple | list | deque) and not isinstance(value, HandedOff):
            return [self._any(one) for one in value]
        if isinstance(value, dict):
            return [(self._any(one), self._any(other)) for one, other in value.items()]
        if isinstance(value, partial):
            return value.func.__qualname__, [self._any(one) for one in value.args]
        if isinstance(value, MethodType):
            return value.__qualname__
        if isinstance(value, FunctionType | GeneratorType | Task):
            return value.__class__.__name__
        if isinstance(value, Call):
            return value.is_over()
        return self._object(value)

    def _object(self, value: Any) -> object:
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if isinstance(value, NameGrant):
            hold = value._hold
            return (
                "grant",
                self._any(hold),
                value._fence.number - hold.first_number,
                value._lost_at_end,
                value.mode,
                self._end(value._max_hold_ends),
            )
        fields = _FIELDS.get(type(value).__name__)
        if fields is None:
            # Nothing is left out by mistake.
            if type(value).__module__.startswith("distlock.") and type(value).__name__ in _SINGLE:
                return type(value).__name__
            raise TypeError(f"{type(value)} is not known to the key")
        written = [self._by(how, getattr(value, name)) for name, how in fields.items()]
        if isinstance(value, LockRequest):
            written.append(value.unanswered > 0)
        elif isinstance(value, Waiter):
            written += [value.failure is not None, value.came if value.asks_once else None]
        return type(value).__name__, *written


#: The objects of which an engine has one.
_SINGLE = {
    "Cancellations",
    "CriticalSection",
    "Engine",
    "HoldCalls",
    "MaintenanceThread",
    "Refusals",
    "Renewer",
    "ReplyReader",
    "StalledWaiters",
    "StatusPublisher",
    "WaitQueues",
}


@cache
def still_read(code: CodeType, last: int) -> frozenset[str]:
    """Return the local variables that *code* may read after its instruction at *last*."""
    return _all_read(code)[last] - _ELSEWHERE


@cache
def _all_read(code: CodeType) -> dict[int, frozenset[str]]:
    """Return for each instruction of *code* what may be read after it: data flow, backwards."""
    instructions = [*dis.get_instructions(code)]
    places = {one.offset: place for place, one in enumerate(instructions)}
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    following: list[set[int]] = []
    for place, one in enumerate(instructions):
        to = set()
        if one.opname not in _NEVER_GOES_ON and place + 1 < len(instructions):
            to.add(place + 1)
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            to.add(places[one.argval])
        to |= {places[each.target] for each in handlers if each.start <= one.offset < each.end}
        following.append(to)
    always = frozenset((*code.co_cellvars, *code.co_freevars))
    before = [frozenset[str]()] * len(instructions)
    after = [always] * len(instructions)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(instructions))):
            one = instructions[place]
            out = always.union(*(before[to] for to in following[place]))
            into = out
            if one.opname in ("STORE_FAST", "DELETE_FAST"):
                into = out - {one.argval}
            elif one.opcode in dis.haslocal:
                # LOAD_FAST, and what later versions of Python have beside it.
                into = out.union(one.argval if isinstance(one.argval, tuple) else (one.argval,))
            if (into, out) != (before[place], after[place]):
                before[place], after[place], changed = into, out, True
    return {one.offset: after[place] for place, one in enumerate(instructions)}


_NEVER_GOES_ON = {
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
    "JUMP_FORWARD",
    "RAISE_VARARGS",
    "RERAISE",
    "RETURN_VALUE",
}


def orders(live: LiveProcess) -> list[tuple[int, ...]]:
    """Return the orders of the tasks that only exchange callers that do the same. The keeper is the last."""
    callers = range(len(live.tasks) - 1)
    whats = [live.tasks[number].what for number in callers]
    found = [one for one in itertools.permutations(callers) if [whats[number] for number in one] == whats]
    return [(*one, len(whats)) for one in found]


def describe(live: LiveProcess) -> tuple[str, list[Ordinal], tuple[int, ...]]:
    """Return the key of *live*, its names, and the order of its tasks for which the key is the least."""
    best: tuple[str, list[Ordinal], tuple[int, ...]] | None = None
    for order in orders(live):
        one = Description(live, order)
        if best is None or one.key < best[0]:
            best = one.key, one.names, order
    assert best is not None
    return best
