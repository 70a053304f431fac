"""The page of one lock, semaphore or latch: holders and queue; and how it is asked for, or broken."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeGuard

from distlock.errors import LockError
from distlock.locks.client import Locks
from distlock.modes import KINDS, LATCH, LOCK, READ, SEMAPHORE, Kind
from distlock.operate import LockState, Party, break_lock
from distlock.operate.asking import ask_back

#: The consequences of a break, for the person that is about to break the lock.
CONSEQUENCES = (
    "The next in the queue gets the lock at once. The holder is told, at the latest at its next renewal, and "
    "goes on until then. If its transaction is fenced it can't be committed any more. Without a fence, what "
    "it does may stand beside what the next holder does: make sure that its process is dead or hung."
)


CONSEQUENCES_OF_PERMITS = (
    "The permits of the holder that was seen come back, and the next in the queue gets them at once. The "
    "holder is told, at the latest at its next renewal, and goes on until then: meanwhile more are inside "
    "than there are permits. Make sure that its process is dead or hung."
)

#: So many holders are shown.
_MOST_HOLDERS = 20


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def shown_seconds(seconds: float) -> str:
    """A duration for people: two units at most."""
    whole = round(seconds)
    for (unit, size), (smaller, below) in itertools.pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def shown_since(party: Party | None) -> str:
    """For how long *party* has held or waited; "" if that is not known."""
    return "" if party is None or not party.since else shown_seconds(party.seconds())


def printable(text: str) -> str:
    """*text*, on one line: what a log is told of a person holds no line break."""
    return "".join(character if character.isprintable() else "?" for character in text)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of the page of one lock."""

    #: None: something is wrong.
    state: LockState | None = None
    #: Why nothing is shown; "" unless something is wrong.
    trouble: str = ""
    #: Whether its holder can be asked to give it back.
    can_ask: bool = False

    @property
    def hold(self) -> str:
        """The id of the hold that was seen; "" if nobody holds the lock, or it has no id."""
        return "" if self.state is None else self.state.hold

    @property
    def holder(self) -> Party | None:
        return None if self.state is None else self.state.holder

    @property
    def held_for(self) -> str:
        return shown_since(self.holder)

    @property
    def remaining(self) -> str:
        """The remaining lease, as text."""
        if self.state is None or self.state.holder is None:
            return ""
        left = self.state.remaining
        if left is None:
            return "not told by the lock service"
        return shown_seconds(left) if math.isfinite(left) else "no lease: it ends with its process"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The known facts about the hold or the latch, if there is one."""
        state = self.state
        if state is None:
            return []
        if state.kind == LATCH:
            return [] if state.left is None else _facts_of_latch(state)
        if state.holder is None:
            return []
        if state.kind == SEMAPHORE:
            out = ("Permits out", f"{state.inside} of {state.limit}" if state.limit else str(state.inside))
            return [out, *_holders(state, "Held by"), ("Lease left, the first", self.remaining)]
        fence = (
            "Fence of the hold",
            "not told by the lock service"
            if state.fence is None
            else f"{state.fence.epoch}:{state.fence.number}",
        )
        if state.mode == READ:
            callers = f"{state.inside} caller{'' if state.inside == 1 else 's'}"
            return [("Read by", callers), *_holders(state, "In"), ("Lease left", self.remaining), fence]
        return [
            ("Held by", str(state.holder)),
            ("Held for", self.held_for or "a moment, or not known"),
            ("Lease left", self.remaining),
            fence,
            *([("Held on", state.servers)] if state.servers else []),
            *([("Ends its session, and all that this holds", state.ended_by)] if state.ended_by else []),
        ]

    @property
    def nobody(self) -> str:
        """The text in the place of missing facts."""
        is_latch = self.state is not None and self.state.kind == LATCH
        return "There is no such latch: nobody made it, or it is over." if is_latch else "Nobody holds it."

    @property
    def consequences(self) -> str:
        """The consequences of a break, as text."""
        of_permits = self.state is not None and self.state.kind == SEMAPHORE
        return CONSEQUENCES_OF_PERMITS if of_permits else CONSEQUENCES

    @property
    def waiting(self) -> str:
        """How many processes wait."""
        number = 0 if self.state is None else self.state.waiting
        return f"Waiting: {number} {'process' if number == 1 else 'processes'}, the next one first"

    @property
    def queue(self) -> list[str]:
        """A line for each process that waits."""
        return [] if self.state is None else [shown_waiting(one) for one in self.state.queue]

    @property
    def more(self) -> str:
        """How many processes wait behind those that are shown; "" where all are."""
        left_out = 0 if self.state is None else self.state.waiting - len(self.state.queue)
        return f"And {left_out} more." if left_out > 0 else ""


def _holders(state: LockState, term: str) -> list[tuple[str, str]]:
    shown = [(term, _shown_holder(one)) for one in state.holders[:_MOST_HOLDERS]]
    more = 1 + state.others - len(shown)
    return [*shown, (term, f"{more} more")] if more > 0 else shown


def _shown_holder(party: Party) -> str:
    since = shown_since(party)
    return f"{party}{f': {party.holding}' if party.holding else ''}{f', for {since}' if since else ''}"


def _facts_of_latch(state: LockState) -> list[tuple[str, str]]:
    left = f"{state.left} of {state.total}" if state.left else "0: it is open"
    return [("Left", left), ("Gone in", shown_seconds(state.remaining or 0.0))]


def shown_waiting(party: Party) -> str:
    """A process in the queue: how many callers of it wait, and for how long."""
    callers = f": {party.waiting} caller{'' if party.waiting == 1 else 's'}" if party.waiting else ""
    since = shown_since(party)
    return f"{party}{callers}{f', for {since}' if since else ''}"


def look(client: Callable[[], Locks], name: str, kind: Kind = LOCK) -> Sighting:
    """Return the content of the page of *name*. Never raises `LockError`.

    *client*: makes the client, and raises `ConfigurationError` where its settings can't work.
    """
    try:
        locks = client()
        state = locks.inspect(name, kind)
    except LockError as error:
        return Sighting(trouble=str(error))
    with suppress(LockError):
        locks.namespace.refuse_lacking("notify", "request_release()")
        return Sighting(state, can_ask=kind != LATCH and state.holder is not None)
    return Sighting(state)


def is_kind(said: str) -> TypeGuard[Kind]:
    """Whether *said*, by a browser, is what bears names."""
    return said in KINDS


def ask_seen(client: Callable[[], Locks], name: str, kind: Kind, by: str) -> LockState | None:
    """Ask the holder of *name* to give it back. *by*: the person, for the log.

    Returns what was seen before; None: nobody holds it. Raises as `break_seen` does.
    """
    locks = client()
    state = locks.inspect(name, kind)
    return state if ask_back(locks.namespace, state, printable(by)) else None


def is_hold(said: str) -> bool:
    """Whether *said*, by a browser, could name a hold."""
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", said) is not None


def break_seen(
    client: Callable[[], Locks], name: str, hold: str, by: str, kind: Kind = LOCK
) -> LockState | None:
    """Break the hold of *name* that *hold* names, and nothing after it. *by*: the person, for the log.

    Returns what was broken; None, and nothing is changed, if it has ended meanwhile. Raises
    `BackendUnavailable`, `InvalidName`; `ConfigurationError` where the lock service can't do it.
    """
    locks = client()
    state = locks.inspect(name, kind)
    if not hold or state.hold != hold:
        return None
    return state if break_lock(locks.namespace, state, printable(by)) else None
