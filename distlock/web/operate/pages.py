"""The three pages of locks: what their templates are given, whatever framework shows them.

The templates keep to what Django's and Jinja's template languages have in common: either renders them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from distlock.locks.client import Locks
from distlock.modes import KINDS, Kind
from distlock.web.operate.one_lock import Sighting, look
from distlock.web.operate.overview import overview

TEMPLATES, STATIC = (Path(__file__).with_name(name) for name in ("templates", "static"))
LOCKS, LOCK, BREAK = "locks.html", "lock.html", "break.html"

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
