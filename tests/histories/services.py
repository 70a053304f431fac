"""The model of each kind of lock service: the memory backend's service, with what is different.

`tests.histories.test_models` plays the same calls against these models and the real servers. A model is
called with its whole state, a tuple, and answers with the next one.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from distlock.backends.base import EXCLUSIVE, Acquired, Busy, LockRequest, Mode, Queued
from tests.backend_class import backend_class
from tests.histories.process import KEY, TTL, Family

_memory: Any = backend_class("memory://")("memory://").service
MemoryService: Any = type(_memory)
_module: Any = sys.modules[MemoryService.__module__]
_Hold, _Entry, KeyRecord = _module.MemoryHold, _module.RequestEntry, _module.KeyRecord
#: Seconds between polls where waiters are told nothing.
POLL = 0.1

REDIS = Family("redis", hands_off=True, posts=True, late=True)
ZOOKEEPER = Family("zookeeper", posts=True, sessions=True)
SQL = Family("sql", sees_end=True, shared=False, sessions=True)
FILE = Family("file", lease=False)
POLLED = Family("polled", shared=False, fair=False)
FAMILIES = {family.name: family for family in (REDIS, ZOOKEEPER, SQL, FILE, POLLED)}

#: A hold: token, mode, permits, limit, number, seconds until it ends, whether it was acknowledged.
Held = tuple[int, Mode, int, int, int, float, bool]
#: A request that waits: token, mode, permits, limit, seconds since its latest poll, whether that poll is the
#: latest that its process has sent.
Waiting = tuple[int, Mode, int, int, float, bool]
#: A push: kind, token, mode, number, seconds since the poll that it answers, whether that is the latest one.
Push = tuple[str, int, Mode, int, float, bool]


class State(NamedTuple):
    """What a lock service has of the one key."""

    holds: tuple[Held, ...] = ()
    queue: tuple[Waiting, ...] = ()
    last_number: int = 0

    def passes(self, seconds: float, family: Family) -> State:
        """Return the state after some time."""
        holds = tuple(
            (*one[:5], one[5] if math.isinf(one[5]) else max(0.0, round(one[5] - seconds, 6)), one[6])
            for one in self.holds
        )
        # Only where a waiter that does not poll is taken for dead it matters when it did.
        queue = self.queue
        if family.late:
            queue = tuple((*one[:4], min(9.0, round(one[4] + seconds, 6)), one[5]) for one in queue)
        return State(holds, queue, self.last_number)


class Contender:
    """What the service knows of a process. Keeps the pushes."""

    def __init__(self, pushes: list[tuple[str, int, int, float]]) -> None:
        self.process = ""
        self._pushes = pushes

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        self._pushes.append(("handed_off", int(token), number, sent))

    def lost(self, key: str, token: str) -> None:
        self._pushes.append(("lost", int(token), 0, 0.0))

    def release_requested(self, key: str, token: str) -> None:
        """Nobody requests one."""


class ModeledService(MemoryService):  # type: ignore[misc]
    """The memory backend's service, as one family of lock services."""

    family: Family = REDIS

    def release(self, request: LockRequest) -> bool:
        if self.family.late:
            # Its scripts know a hold by its mode, too.
            with self._record(request.key) as record:
                hold = record.hold(request.token)
                if hold is not None and hold.mode != request.mode:
                    return False
        ours: bool = super().release(request)
        return ours

    def request(self, request: LockRequest, backend: Any) -> Acquired | Queued | Busy:
        if self.family.fair:
            answer: Acquired | Queued | Busy = super().request(request, backend)
            return answer
        waits, request.wait = request.wait, False
        try:
            answer = super().request(request, backend)
        finally:
            request.wait = waits
        return Queued(POLL) if waits and isinstance(answer, Busy) else answer

    def _first(self, record: Any, now: float) -> Any:
        # Elsewhere a waiter leaves the queue when its process or its session ends.
        if not self.family.late and record.queue:
            return record.queue[0]
        return super()._first(record, now)


class Model:
    """A lock service, as a function of its state. What was computed once is remembered."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.ttl = TTL if family.lease else math.inf
        self._known: dict[tuple[Any, ...], tuple[State, Any, tuple[Push, ...]]] = {}

    def call(self, state: State, call: str, about: tuple[Any, ...]) -> tuple[State, Any, tuple[Push, ...]]:
        """Return the next state, the answer and the pushes. *about*: see `TaskView.about`."""
        asked = state, call, about
        known = self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._call(state, call, about)
        return known

    def without(self, state: State, tokens: frozenset[int]) -> tuple[State, tuple[Push, ...]]:
        """Return the state after the holds and places of *tokens* have ended, and the pushes."""
        holds = tuple(one for one in state.holds if one[0] not in tokens)
        queue = tuple(one for one in state.queue if one[0] not in tokens)
        if (holds, queue) == (state.holds, state.queue):
            return state, ()
        after, _, pushes = self.call(State(holds, queue, state.last_number), "look", ())
        return after, pushes

    def has_room(self, state: State, mode: Mode, permits: int, limit: int) -> bool:
        """Return whether a request is compatible with the holds that have not ended."""
        record = self._loaded(state, []).records[KEY]
        record.holds = [hold for hold in record.holds if hold.ends > 0]
        return bool(record.has_room(LockRequest(KEY, "", TTL, 1, True, mode, limit, permits)))

    def _call(self, state: State, call: str, about: tuple[Any, ...]) -> tuple[State, Any, tuple[Push, ...]]:
        pushed: list[tuple[str, int, int, float]] = []
        service, contender = self._loaded(state, pushed), Contender(pushed)
        answer: Any = None
        before = {one[0]: one for one in state.queue}
        if call == "look":
            service.locked(KEY)
        elif call in ("renew", "acknowledge"):
            answers = [
                service.renew(self._request(one))
                if call == "renew"
                else service.acknowledge(self._request(one), one[5])
                for one in about
            ]
            answer = ("all", *answers)
        else:
            request = self._request(about[0])
            if call == "request":
                answer = self._written(service.request(request, contender))
            else:
                answer = getattr(service, "release" if call == "post" else call)(request)
        after = self._dumped(service, before, about if call == "request" else ())
        modes = {one[0]: (one[1], one[4], one[5]) for one in (*state.queue, *after.queue)}
        pushes = tuple(
            (kind, token, modes[token][0] if token in modes else EXCLUSIVE, number, sent, modes[token][2])
            for kind, token, number, sent in pushed
            if token in modes
        )
        return after, answer, pushes

    def _written(self, answer: Any) -> tuple[Any, ...]:
        if isinstance(answer, Acquired):
            return "acquired", answer.number, answer.ttl, answer.followed
        if isinstance(answer, Queued):
            return "queued", round(answer.poll, 6)
        return ("busy",)

    def _request(self, one: tuple[Any, ...]) -> LockRequest:
        token, mode, wait, limit, permits, _ = one
        return LockRequest(KEY, str(token), self.ttl, 1, wait, mode, limit, permits)

    def _loaded(self, state: State, pushed: list[tuple[str, int, int, float]]) -> Any:
        service = ModeledService(now=lambda: 0.0)
        service.family = self.family
        service.last_number = state.last_number
        with service.mutex:
            record = service._current(KEY)
            record.holds = [
                _hold(service, self._entry(one[0], one[1], one[2], one[3], 0.0, pushed), one)
                for one in state.holds
            ]
            record.queue = [self._entry(*one[:5], pushed) for one in state.queue]
        return service

    def _entry(
        self,
        token: int,
        mode: Mode,
        permits: int,
        limit: int,
        ago: float,
        pushed: list[tuple[str, int, int, float]],
    ) -> Any:
        request = LockRequest(KEY, str(token), self.ttl, 1, True, mode, limit, permits)
        return _Entry(request, Contender(pushed), -ago)

    def _dumped(self, service: Any, before: dict[int, Waiting], polled: tuple[Any, ...]) -> State:
        record = service.records.get(KEY)
        if record is None:
            return State((), (), service.last_number)
        holds = tuple(
            (
                int(hold.entry.request.token),
                hold.mode,
                hold.entry.request.permits,
                hold.entry.request.limit,
                hold.number,
                round(hold.ends, 6),
                hold.acknowledged,
            )
            for hold in record.holds
        )
        fresh = {one[0] for one in polled}
        queue = tuple(
            (
                int(entry.request.token),
                entry.request.mode,
                entry.request.permits,
                entry.request.limit,
                -entry.seen if self.family.late else 0.0,
                int(entry.request.token) in fresh or before[int(entry.request.token)][5],
            )
            for entry in record.queue
        )
        return State(holds, queue, service.last_number)


def _hold(service: Any, entry: Any, one: Held) -> Any:
    return _Hold(entry, one[1], one[4], one[5], one[6])
