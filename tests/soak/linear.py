"""The judge of latches: is there an order of their calls in which each answer is right?

This is the search of Wing and Gong (https://doi.org/10.1006/jpdc.1993.1015) with the memory of Lowe: it looks
for one moment within each call at which the call took effect. A call without an answer may have had its
effect at any later moment, or never. Nothing of distlock is used here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.soak.notes import LATCH_TTL, LatchCall

#: How many states of the search are tried for one latch. Histories that need more are not judged.
MOST_STATES = 50_000


@dataclass(frozen=True, slots=True)
class Latch:
    """A latch that exists: its count, how much is left of it, and the parts that were counted."""

    total: int
    left: int
    parts: frozenset[str] = frozenset()

    def counted(self, by: int, part: str | None) -> Latch:
        """Return the latch after a count. A part counts once; an open latch counts no more."""
        if not self.left or part in self.parts:
            return self
        parts = self.parts if part is None else self.parts | {part}
        return Latch(self.total, max(0, self.left - by), parts)


#: What a latch is: None: it does not exist.
State = Latch | None


@dataclass(frozen=True, slots=True)
class _Effect:
    """What one call may do at one moment. *optional*: whether it may also do nothing, or do it later."""

    call: LatchCall
    began: float
    ended: float
    optional: bool
    #: Returns the states that the call may leave behind, if it has its answer in that state; else nothing.
    apply: Callable[[State], tuple[State, ...]]


def unexplained(
    calls: Iterable[LatchCall], is_disturbed: Callable[[LatchCall], bool] = lambda call: False
) -> Iterator[tuple[LatchCall, int]]:
    """Yield, for each latch whose answers no order explains, a call that can't be right, and when it ended.

    *is_disturbed*: whether a fault may have swallowed the answer to a call, which was repeated then. More
    answers are right for such a call.
    """
    by_name: dict[str, list[LatchCall]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call)
    for same in by_name.values():
        if (wrong := _search(_effects(same, is_disturbed))) is not None:
            yield wrong


def _effects(calls: list[LatchCall], is_disturbed: Callable[[LatchCall], bool]) -> list[_Effect]:
    """Return what *calls* of one latch may have done, before its lifetime could be over."""
    # Nothing expires before this moment.
    over = min(call.began for call in calls) + 0.9 * LATCH_TTL
    effects: list[_Effect] = []
    for call in calls:
        if call.began >= over:
            continue
        if call.answer is None or call.ended >= over:
            effects += _change(call)
        else:
            if disturbed := is_disturbed(call):
                effects += _change(call)
            effects.append(_Effect(call, call.began, call.ended, False, _answering(call, disturbed)))
    return sorted(effects, key=lambda effect: effect.began)


def _part(call: LatchCall) -> str:
    """Return the part that *call* counts. Without one, its repetitions still count once."""
    return call.part or f"{call.caller} at {call.began}"


def _change(call: LatchCall) -> list[_Effect]:
    """Return the change that *call* may have made, without its answer."""

    def change(state: State) -> tuple[State, ...]:
        if call.what == "make" and state is None:
            return (Latch(call.total, call.total),)
        if call.what == "count" and state is not None:
            return (state.counted(call.by, _part(call)),)
        return (None,) if call.what == "delete" else ()

    changes = call.what in {"make", "count", "delete"}
    return [_Effect(call, call.began, math.inf, True, change)] if changes else []


def _answering(call: LatchCall, disturbed: bool) -> Callable[[State], tuple[State, ...]]:
    """Return what *call* does in a state in which its answer is right."""

    def apply(state: State) -> tuple[State, ...]:
        answer = call.answer
        if answer == "not found":
            return (None,) if state is None else ()
        if call.what == "make":
            if answer is True and state is None:
                return (Latch(call.total, call.total),)
            fits = state is not None and (state.total == call.total) != (answer == "other count")
            # An earlier attempt of a call that was repeated may have made the latch.
            return (state,) if fits and (answer is not True or disturbed) else ()
        if call.what == "delete":
            return (None,) if (state is not None) == answer else ()
        if state is None:
            return ()
        if call.what == "count":
            after = state.counted(call.by, _part(call) if disturbed else call.part)
            # A call that was repeated may have got the answer of a later moment.
            is_right = isinstance(answer, int) and (
                answer <= after.left if disturbed else answer == after.left
            )
            return (after,) if is_right else ()
        is_right = answer == (state.left if call.what == "look" else not state.left)
        return (state,) if is_right else ()

    return apply


def _search(effects: list[_Effect]) -> tuple[LatchCall, int] | None:
    """Return a call that no order explains, with the number of calls that one does; None: all are explained.

    *effects* are sorted by their beginning.
    """
    needed = sum(1 << place for place, effect in enumerate(effects) if not effect.optional)
    stack: list[tuple[int, State]] = [(0, None)]
    seen = set(stack)
    best, wrong = -1, None
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return None
        candidates, first = _candidates(effects, done)
        if (count := (done & needed).bit_count()) > best:
            best, wrong = count, first.call
        for place, effect in _next(candidates, state):
            for after in effect.apply(state):
                if (found := (done | 1 << place, after)) not in seen:
                    seen.add(found)
                    stack.append(found)
        if len(seen) > MOST_STATES:
            return None
    assert wrong is not None
    return wrong, best


def _candidates(effects: list[_Effect], done: int) -> tuple[list[tuple[int, _Effect]], _Effect]:
    """Return the effects that may be next, with their places, and the needed one that has to end first."""
    rest: list[tuple[int, _Effect]] = []
    first: _Effect | None = None
    lowest_open = (~done & (done + 1)).bit_length() - 1
    for place in range(lowest_open, len(effects)):
        effect = effects[place]
        if first is not None and effect.began > first.ended:
            break
        if not done >> place & 1:
            rest.append((place, effect))
            if not effect.optional and (first is None or effect.ended < first.ended):
                first = effect
    assert first is not None
    return [(place, effect) for place, effect in rest if effect.began <= first.ended], first


def _next(candidates: list[tuple[int, _Effect]], state: State) -> list[tuple[int, _Effect]]:
    """Return the *candidates* to try, the most promising last.

    One that never changes anything, and is right in *state*, may as well be next: no order is lost.
    """
    useful: list[tuple[int, _Effect]] = []
    for place, effect in candidates:
        states = effect.apply(state)
        if states and _only_reads(effect):
            return [(place, effect)]
        if states and not (effect.optional and states == (state,)):
            useful.append((place, effect))
    return sorted(useful, key=lambda one: (one[1].optional, one[1].ended), reverse=True)


def _only_reads(effect: _Effect) -> bool:
    """Return whether *effect* has an answer that says that it changed nothing, in whatever state."""
    call, answer = effect.call, effect.call.answer
    return not effect.optional and (
        call.what in {"look", "wait"} or answer is False or answer in {"not found", "other count"}
    )
