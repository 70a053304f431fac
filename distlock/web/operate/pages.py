"""The three pages of locks: what their templates are given, whatever framework shows them.

The templates keep to what Django's and Jinja's template languages have in common: either renders them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from distlock.errors import LockError
from distlock.locks.client import Locks
from distlock.modes import EXCLUSIVE, KINDS, LATCH, LOCK, READ, SEMAPHORE, Kind, Mode
from distlock.operate import Listed, Party
from distlock.web.operate.one_lock import Sighting, look, shown_since

TEMPLATES, STATIC = (Path(__file__).with_name(name) for name in ("templates", "static"))
LOCKS_HTML, LOCK_HTML, BREAK_HTML = "locks.html", "lock.html", "break.html"

#: Makes a client, and raises `ConfigurationError` where its settings can't work.
Client = Callable[[], Locks]
Context = dict[str, Any]


class Addresses(Protocol):
    """Where the pages are."""

    def locks(self, alias: str, before: str) -> str:
        """Return the address of the page of *alias*, for the names that begin with *before*."""

    def lock(self, alias: str, name: str, kind: Kind) -> str:
        """Return the address of the page of one lock, semaphore or latch."""

    def ask(self, alias: str, name: str, hold: str, kind: Kind) -> str:
        """That which asks whether to break *hold*."""


def locks_page(client: Client, aliases: Sequence[str], alias: str, before: str, at: Addresses) -> Context:
    """Return the content of the page of what is held or waited for."""
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
    """One lock: holder and queue. *may_break*: the ways to ask for it and to break it are shown.

    The face adds ``hidden``, fields of the form with the action ``ask_back``, where that is shown.
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
    """The question before *hold* is broken. The face adds ``action`` and ``hidden``, fields of its form."""
    ended = "The hold that you saw has ended: the lock is free, or has passed on. Nothing was broken."
    return {
        "trouble": seen.trouble or ("" if seen.hold == hold else ended),
        "back": at.lock(alias, name, kind),
        "held_by": seen.holder,
        "held_for": seen.held_for,
        "consequences": seen.consequences,
    }


#: How many locks a page shows, at most.
MOST_SHOWN = 200
#: How many lines of processes are read for them, at most: each is a holder or the waiters of a process.
MOST_READ = 5_000


@dataclass(slots=True)
class Line:
    """One lock, semaphore or latch, as the processes tell of it."""

    name: str
    kind: Kind = LOCK
    #: None: nobody has held it for longer than a moment. Of several the one that has held it longest.
    holder: Party | None = None
    mode: Mode = EXCLUSIVE
    #: How many callers read, or how many permits are out, and of how many; 0: it is held as a whole.
    holding: int = 0
    limit: int = 0
    #: A latch's original and remaining count.
    total: int | None = None
    left: int | None = None
    #: How many callers wait, in all processes.
    waiting: int = 0
    #: The one that waits longest.
    first: Party | None = None

    @property
    def seconds(self) -> float:
        """How long somebody has held it or waited for it."""
        return max((one.seconds() for one in (self.holder, self.first) if one is not None), default=0.0)

    @property
    def what(self) -> str:
        """The kind of the name; "" for a lock, as most are."""
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
        """How many wait, and for how long; "": nobody does."""
        longest = shown_since(self.first)
        return f"{self.waiting}{f', for up to {longest}' if longest else ''}" if self.waiting else ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of the page of an alias."""

    #: The longest held or waited for first.
    lines: tuple[Line, ...] = ()
    #: How many locks were read and are not shown.
    left_out: int = 0
    #: Whether there are more, which were not even read.
    more: bool = False
    #: Why nothing is shown; "" unless something is wrong.
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

    *client*: makes the client, and raises `ConfigurationError` where its settings can't work.
    """
    try:
        entries = list(islice(client().list(before), MOST_READ + 1))
    except LockError as error:
        return Overview(trouble=str(error))
    lines = by_name(entries[:MOST_READ])
    longest = heapq.nlargest(MOST_SHOWN, lines, key=lambda line: line.seconds)
    return Overview(tuple(longest), len(lines) - len(longest), len(entries) > MOST_READ)


def by_name(entries: Iterable[Listed]) -> list[Line]:
    """One line for each lock, semaphore or latch."""
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
