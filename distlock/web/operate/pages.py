"""The content of the three pages of locks, and their actions, for both frameworks.

Django and Jinja can both render the templates, which use only what the two languages have in common.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from distlock.errors import LockError
from distlock.locks.client import Locks
from distlock.operate import Listed, LockState, Party, break_lock
from distlock.operate.looking import ask_back
from distlock.terms import EXCLUSIVE, KINDS, LATCH, LOCK, READ, SEMAPHORE, Kind, Mode

#: Returns a client. Raises `ConfigurationError` for settings that can't work.
Client = Callable[[], Locks]

#: The consequences of breaking a lock, for the person who is about to do it.
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

NO_LATCH = "There is no such latch: nobody made it, or it is over."

#: The most holders that are shown.
_MOST_HOLDERS = 20


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def shown_seconds(seconds: float) -> str:
    """Return *seconds* as text, with two units at most."""
    whole = round(seconds)
    for (unit, size), (smaller, below) in itertools.pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def shown_since(party: Party | None) -> str:
    """Return for how long *party* has held or waited, as text; "" if that is not known."""
    return "" if party is None or not party.since else shown_seconds(party.seconds())


def _facts(state: LockState) -> list[tuple[str, str]]:
    """Return the known facts about the hold or the latch as pairs of term and text; [] if there is none."""
    if state.kind == LATCH:
        if state.left is None:
            return []
        left = f"{state.left} of {state.total}" if state.left else "0: it is open"
        return [("Left", left), ("Gone in", shown_seconds(state.remaining or 0.0))]
    if state.holder is None:
        return []
    lease = _shown_lease(state.remaining)
    if state.kind == SEMAPHORE:
        out = ("Permits out", f"{state.inside} of {state.limit}" if state.limit else str(state.inside))
        return [out, *_holders(state, "Held by"), ("Lease left, the first", lease)]
    known = state.fence
    fence = "not told by the lock service" if known is None else f"{known.epoch}:{known.number}"
    facts = [("Lease left", lease), ("Fence of the hold", fence)]
    if state.mode == READ:
        callers = f"{state.inside} caller{'' if state.inside == 1 else 's'}"
        return [("Read by", callers), *_holders(state, "In"), *facts]
    return [
        ("Held by", str(state.holder)),
        ("Held for", shown_since(state.holder) or "a moment, or not known"),
        *facts,
        *([("Held on", state.servers)] if state.servers else []),
        *([("Ends its session, and all that this holds", state.ended_by)] if state.ended_by else []),
    ]


def _shown_lease(left: float | None) -> str:
    if left is None:
        return "not told by the lock service"
    return shown_seconds(left) if math.isfinite(left) else "no lease: it ends with its process"


def _holders(state: LockState, term: str) -> list[tuple[str, str]]:
    shown = [(term, _shown_holder(one)) for one in state.holders[:_MOST_HOLDERS]]
    more = 1 + state.others - len(shown)
    return [*shown, (term, f"{more} more")] if more > 0 else shown


def _shown_holder(party: Party) -> str:
    since = shown_since(party)
    return f"{party}{f': {party.holding}' if party.holding else ''}{f', for {since}' if since else ''}"


def shown_waiting(party: Party) -> str:
    """Return *party*, a process in the queue, as text: how many of its callers wait, and for how long."""
    callers = f": {party.waiting} caller{'' if party.waiting == 1 else 's'}" if party.waiting else ""
    since = shown_since(party)
    return f"{party}{callers}{f', for {since}' if since else ''}"


def _on_one_line(text: str) -> str:
    """Return *text*, which a person has written, with ``?`` for what would not fit into a line of the log."""
    return "".join(character if character.isprintable() else "?" for character in text)


def is_kind(text: str) -> TypeGuard[Kind]:
    """Return whether *text*, which a browser has sent, is a `Kind`."""
    return text in KINDS


def request_release(client: Client, name: str, kind: Kind, by: str) -> LockState | None:
    """Ask the holder of *name* to release it. *by*: the person, for the log.

    Return the state before; None: nobody holds it. Raises what `break_hold` raises.
    """
    locks = client()
    state = locks.inspect(name, kind)
    return state if ask_back(locks.namespace, state, _on_one_line(by)) else None


def is_hold(text: str) -> bool:
    """Return whether *text*, which a browser has sent, could be the id of a hold."""
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None


def break_hold(client: Client, name: str, hold: str, by: str, kind: Kind = LOCK) -> LockState | None:
    """Break the hold of *name* with the id *hold*, and no later one. *by*: the person, for the log.

    Return the state before; None: that hold has ended, and nothing was broken. Raises `BackendUnavailable`,
    `InvalidName`; `ConfigurationError` if the lock service can't do it.
    """
    locks = client()
    state = locks.inspect(name, kind)
    if not hold or state.hold != hold:
        return None
    return state if break_lock(locks.namespace, state, _on_one_line(by)) else None


TEMPLATES, STATIC = (Path(__file__).with_name(name) for name in ("templates", "static"))
LOCKS_HTML, LOCK_HTML, BREAK_HTML = "locks.html", "lock.html", "break.html"

Context = dict[str, Any]


class Addresses(Protocol):
    """The addresses of the pages."""

    def locks(self, alias: str, before: str) -> str:
        """Return the address of the page of *alias*, for the names that begin with *before*."""

    def lock(self, alias: str, name: str, kind: Kind) -> str:
        """Return the address of the page of one lock, semaphore or latch."""

    def confirm_break(self, alias: str, name: str, hold: str, kind: Kind) -> str:
        """Return the address of the page that asks whether to break *hold*."""


def locks_page(client: Client, aliases: Sequence[str], alias: str, before: str, at: Addresses) -> Context:
    """Return the content of the page that lists locks."""
    seen = overview(client, before)
    tabs = [(one, at.locks(one, before), one == alias) for one in aliases]
    return {
        "tabs": tabs if len(tabs) > 1 else [],
        "alias": alias,
        "before": before,
        "exactly": at.lock(alias, before, "lock") if before else "",
        "trouble": seen.trouble,
        "summary": seen.summary,
        "rows": [(line, at.lock(alias, line.name, line.kind)) for line in seen.lines],
    }


def lock_page(client: Client, alias: str, name: str, at: Addresses, may_break: bool, kind: Kind) -> Context:
    """Return the content of the page of one lock.

    *may_break*: whether the user may break it and request its release. The caller adds ``ask_back`` and
    ``hidden``, the action and the hidden fields of the form that requests the release.
    """
    try:
        locks = client()
        state = locks.inspect(name, kind)
    except LockError as error:
        return {"trouble": str(error), "can_ask": False, "queue": []}
    facts = _facts(state)
    processes = "1 process" if state.waiting == 1 else f"{state.waiting} processes"
    left_out = state.waiting - len(state.queue)
    return {
        "trouble": "",
        "facts": [*facts, ("Alias", alias)] if facts else [],
        "nobody": NO_LATCH if kind == LATCH else "Nobody holds it.",
        "others": [(one, at.lock(alias, name, one)) for one in KINDS if one != kind],
        "break_url": at.confirm_break(alias, name, state.hold, kind) if may_break and state.hold else "",
        "can_ask": may_break and kind != LATCH and state.holder is not None and _can_ask(locks),
        "waiting": f"Waiting: {processes}, the next one first",
        "queue": [shown_waiting(one) for one in state.queue],
        "more": f"And {left_out} more." if left_out > 0 else "",
    }


def _can_ask(locks: Locks) -> bool:
    """Return whether holders can be asked to release their locks."""
    try:
        locks.namespace.refuse_lacking("notify", "request_release()")
    except LockError:
        return False
    return True


def break_page(client: Client, alias: str, name: str, hold: str, at: Addresses, kind: Kind) -> Context:
    """Return the content of the page that asks whether to break *hold*.

    The caller adds ``action`` and ``hidden``, the action and the hidden fields of its form.
    """
    back = at.lock(alias, name, kind)
    try:
        state = client().inspect(name, kind)
    except LockError as error:
        return {"trouble": str(error), "back": back}
    ended = "The hold that you saw has ended: the lock is free, or has passed on. Nothing was broken."
    return {
        "trouble": "" if state.hold == hold else ended,
        "back": back,
        "held_by": state.holder,
        "held_for": shown_since(state.holder),
        "consequences": CONSEQUENCES_OF_PERMITS if kind == SEMAPHORE else CONSEQUENCES,
    }


#: The most locks that a page shows.
MOST_SHOWN = 200
#: The most entries that are read for a page. Each is a holder, or the waiters of one process.
MOST_READ = 5_000


@dataclass(slots=True)
class Line:
    """One lock, semaphore or latch in the list, as far as the processes have published it."""

    name: str
    kind: Kind = LOCK
    #: The holder; if there are several, the one that has held it longest. None: nobody has held it for long.
    holder: Party | None = None
    mode: Mode = EXCLUSIVE
    #: The number of readers, or of permits that are out; 0: the lock is exclusive.
    holding: int = 0
    #: The limit of permits; 0: it is no semaphore, or the limit is unknown.
    limit: int = 0
    #: A latch's original and remaining count.
    total: int | None = None
    left: int | None = None
    #: How many callers wait, in all processes.
    waiting: int = 0
    #: The process that waits longest.
    first: Party | None = None

    @property
    def seconds(self) -> float:
        """For how long it has been held or waited for, whichever is longer."""
        return max((one.seconds() for one in (self.holder, self.first) if one is not None), default=0.0)

    @property
    def what(self) -> str:
        """The kind of the name; "" for a lock."""
        return "" if self.kind == LOCK else self.kind

    @property
    def held_by(self) -> str:
        if self.kind == LATCH:
            return "" if self.left is None else f"{self.left} of {self.total} left"
        if self.holder is None:
            return "not known yet"
        if self.kind == SEMAPHORE:
            return f"{self.holding}{f' of {self.limit}' if self.limit else ''} out, longest: {self.holder}"
        return f"{self.holding} read, longest: {self.holder}" if self.mode == READ else str(self.holder)

    @property
    def held_for(self) -> str:
        return shown_since(self.holder)

    @property
    def waits(self) -> str:
        """How many wait, and for how long, as text; "": nobody does."""
        longest = shown_since(self.first)
        return f"{self.waiting}{f', for up to {longest}' if longest else ''}" if self.waiting else ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of the page of an alias."""

    #: The locks. The one that has been held or waited for longest comes first.
    lines: tuple[Line, ...] = ()
    #: How many locks were read and are not shown.
    left_out: int = 0
    #: Whether there are more entries than were read.
    more: bool = False
    #: The error because of which nothing is shown; "": there was none.
    trouble: str = ""

    @property
    def summary(self) -> str:
        """The text above the table."""
        if self.trouble:
            return self.trouble
        shown = len(self.lines)
        if not shown:
            return "No lock has been held or waited for longer than about three seconds."
        if self.more:
            return (
                f"{shown} locks, the longest of the first {MOST_READ:,} entries that were read. "
                "There are more: write what the names begin with."
            )
        if self.left_out:
            return (
                f"{shown} of {shown + self.left_out} locks, the longest first. "
                "For the others write what the names begin with."
            )
        return "1 lock." if shown == 1 else f"{shown} locks, the longest first."


def overview(client: Client, before: str) -> Overview:
    """Return the published locks whose names begin with *before*. A `LockError` becomes its `trouble`."""
    try:
        entries = list(islice(client().list(before), MOST_READ + 1))
    except LockError as error:
        return Overview(trouble=str(error))
    lines = by_name(entries[:MOST_READ])
    longest = heapq.nlargest(MOST_SHOWN, lines, key=lambda line: line.seconds)
    return Overview(tuple(longest), len(lines) - len(longest), len(entries) > MOST_READ)


def by_name(entries: Iterable[Listed]) -> list[Line]:
    """Return a line for each lock, semaphore or latch in *entries*."""
    lines: dict[tuple[Kind, str], Line] = {}
    for entry in entries:
        line = lines.setdefault((entry.kind, entry.name), Line(entry.name, entry.kind))
        party = entry.party
        if not entry.held:
            line.waiting += party.waiting
            if line.first is None or party.since < line.first.since:
                line.first = party
            line.total, line.left = entry.total, entry.left
        elif entry.mode != EXCLUSIVE:
            line.mode, line.limit = entry.mode, entry.limit
            line.holding += max(1, party.holding)
            if line.holder is None or party.since < line.holder.since:
                line.holder = party
        # The status of a broken or dead holder is older than that of its successor.
        elif line.holder is None or party.since > line.holder.since:
            line.holder = party
    return list(lines.values())
