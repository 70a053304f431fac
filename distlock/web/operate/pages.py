"""The three pages of locks: what their templates are given, whatever framework shows them.

The templates keep to what Django's and Jinja's template languages have in common: either renders them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from distlock.locks import Locks
from distlock.web.operate.one_lock import CONSEQUENCES, Sighting, look
from distlock.web.operate.overview import overview

TEMPLATES, STATIC = (Path(__file__).with_name(name) for name in ("templates", "static"))
LOCKS, LOCK, BREAK = "locks.html", "lock.html", "break.html"

#: Makes a client, and raises `ConfigurationError` where its settings can't work.
Client = Callable[[], Locks]
Context = dict[str, Any]


class Addresses(Protocol):
    """Where the pages are."""

    def locks(self, alias: str, before: str) -> str:
        """That of all locks of *alias*, of the names that begin with *before*."""

    def lock(self, alias: str, name: str) -> str:
        """That of one lock."""

    def ask(self, alias: str, name: str, hold: str) -> str:
        """That which asks whether to break *hold*."""


def locks_page(client: Client, aliases: Sequence[str], alias: str, before: str, at: Addresses) -> Context:
    """What is held or waited for."""
    seen = overview(client, before)
    tabs = [(one, at.locks(one, before), one == alias) for one in aliases]
    return {
        "tabs": tabs if len(tabs) > 1 else [],
        "alias": alias,
        "before": before,
        "exactly": at.lock(alias, before) if before else "",
        "trouble": seen.trouble,
        "said": seen.said,
        "rows": [(line, at.lock(alias, line.name)) for line in seen.lines],
    }


def lock_page(client: Client, alias: str, name: str, at: Addresses, may_break: bool) -> Context:
    """One lock: holder and queue. *may_break*: the way to break it is shown."""
    seen = look(client, name)
    return {
        "trouble": seen.trouble,
        "facts": [*seen.facts, ("Alias", alias)] if seen.holder else [],
        "break_url": at.ask(alias, name, seen.hold) if may_break else "",
        "waiting": seen.waiting,
        "queue": seen.queue,
        "more": seen.more,
    }


def break_page(seen: Sighting, alias: str, name: str, hold: str, at: Addresses) -> Context:
    """The question before *hold* is broken. The face adds ``action`` and ``hidden``, fields of its form."""
    ended = "The hold that you saw has ended: the lock is free, or has passed on. Nothing was broken."
    return {
        "trouble": seen.trouble or ("" if seen.hold == hold else ended),
        "back": at.lock(alias, name),
        "held_by": seen.holder,
        "held_for": seen.held_for,
        "consequences": CONSEQUENCES,
    }
