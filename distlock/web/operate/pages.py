"""The content of the three pages of locks, for both frameworks.

Django and Jinja can both render the templates, which use only what the two languages have in common.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from distlock.errors import LockError
from distlock.locks.client import Locks
from distlock.operate import Listed, LockState, Party, break_lock
from distlock.operate.looking import ask_back
from distlock.terms import EXCLUSIVE, KINDS, LATCH, LOCK, READ, SEMAPHORE, Kind, Mode

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


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of the page of one lock."""

    #: None: see `trouble`.
    state: LockState | None = None
    #: Why nothing is shown; "": something is.
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
        """The text to show if there are no facts."""
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
        """How many more processes wait than are shown, as text; "" if all are shown."""
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
    """Return *party*, a process in the queue, as text: how many of its callers wait, and for how long."""
    callers = f": {party.waiting} caller{'' if party.waiting == 1 else 's'}" if party.waiting else ""
    since = shown_since(party)
    return f"{party}{callers}{f', for {since}' if since else ''}"


def look(client: Callable[[], Locks], name: str, kind: Kind = LOCK) -> Sighting:
    """Return the content of the page of *name*. Never raises `LockError`.

    *client*: see `Client`.
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


def _on_one_line(text: str) -> str:
    """Return *text*, which a person has written, for one line of the log."""
    return "".join(character if character.isprintable() else "?" for character in text)


def is_kind(said: str) -> TypeGuard[Kind]:
    """Return whether *said*, by a browser, is a kind of names."""
    return said in KINDS


def ask_seen(client: Callable[[], Locks], name: str, kind: Kind, by: str) -> LockState | None:
    """Ask the holder of *name* to give it back. *by*: the person, for the log.

    Return the state before; None: nobody holds it. Raises what `break_seen` raises.
    """
    locks = client()
    state = locks.inspect(name, kind)
    return state if ask_back(locks.namespace, state, _on_one_line(by)) else None


def is_hold(said: str) -> bool:
    """Return whether *said*, by a browser, could name a hold."""
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", said) is not None


def break_seen(
    client: Callable[[], Locks], name: str, hold: str, by: str, kind: Kind = LOCK
) -> LockState | None:
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

#: Returns a client. Raises `ConfigurationError` for settings that can't work.
Client = Callable[[], Locks]
Context = dict[str, Any]


class Addresses(Protocol):
    """The addresses of the pages."""

    def locks(self, alias: str, before: str) -> str:
        """Return the address of the page of *alias*, for the names that begin with *before*."""

    def lock(self, alias: str, name: str, kind: Kind) -> str:
        """Return the address of the page of one lock, semaphore or latch."""

    def ask(self, alias: str, name: str, hold: str, kind: Kind) -> str:
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
        "said": seen.said,
        "rows": [(line, at.lock(alias, line.name, line.kind)) for line in seen.lines],
    }


def lock_page(client: Client, alias: str, name: str, at: Addresses, may_break: bool, kind: Kind) -> Context:
    """Return the content of the page of one lock. *may_break*: the user may ask for it and break it.

    The face adds ``hidden``, the hidden fields of the form with the action ``ask_back``.
    """
    seen = look(client, name, kind)
    return {
        "trouble": seen.trouble,
        "facts": [*seen.facts, ("Alias", alias)] if seen.facts else [],
        "nobody": seen.nobody,
        "others": [(one, at.lock(alias, name, one)) for one in KINDS if one != kind],
        "break_url": at.ask(alias, name, seen.hold, kind) if may_break and seen.hold else "",
        "can_ask": may_break and seen.can_ask,
        "waiting": seen.waiting,
        "queue": seen.queue,
        "more": seen.more,
    }


def break_page(seen: Sighting, alias: str, name: str, hold: str, at: Addresses, kind: Kind) -> Context:
    """Return the content of the page that asks whether to break *hold*.

    The face adds ``action`` and ``hidden``, the action and the hidden fields of its form.
    """
    ended = "The hold that you saw has ended: the lock is free, or has passed on. Nothing was broken."
    return {
        "trouble": seen.trouble or ("" if seen.hold == hold else ended),
        "back": at.lock(alias, name, kind),
        "held_by": seen.holder,
        "held_for": seen.held_for,
        "consequences": seen.consequences,
    }


#: The most locks that a page shows.
MOST_SHOWN = 200
#: The most entries that are read for them. Each is a holder, or the waiters of one process.
MOST_READ = 5_000


@dataclass(slots=True)
class Line:
    """One lock, semaphore or latch in the list, made of what the processes publish."""

    name: str
    kind: Kind = LOCK
    #: The holder, or of several the one that has held it longest; None: nobody has held it for long.
    holder: Party | None = None
    mode: Mode = EXCLUSIVE
    #: How many callers read, or how many permits are out, and the limit of permits; 0: the lock is exclusive.
    holding: int = 0
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

    #: The longest held or waited for first.
    lines: tuple[Line, ...] = ()
    #: How many locks were read and are not shown.
    left_out: int = 0
    #: Whether there are more entries than were read.
    more: bool = False
    #: Why nothing is shown; "": something is.
    trouble: str = ""

    @property
    def said(self) -> str:
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


def overview(client: Callable[[], Locks], before: str) -> Overview:
    """Return what is held or waited for, of the names that begin with *before*. Never raises `LockError`.

    *client*: see `Client`.
    """
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
