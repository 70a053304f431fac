"""The page of one lock: holder and queue; and its end, when an operator breaks what was seen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from distlock.errors import LockError
from distlock.locks import Locks
from distlock.operate import LockState, Party, break_lock
from distlock.web.operate.words import printable, shown_seconds

#: What breaking means, for the person that is about to.
CONSEQUENCES = (
    "The next in the queue gets the lock at once. The holder is told, at the latest at its next renewal, and "
    "goes on until then. If its transaction is fenced it can't be committed any more. Without a fence, what "
    "it does may stand beside what the next holder does: make sure that its process is dead or hung."
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a page shows of one lock."""

    #: None: something is wrong.
    state: LockState | None = None
    #: Why nothing is shown; "" unless something is wrong.
    trouble: str = ""

    @property
    def hold(self) -> str:
        """What names the hold that was seen; "": nobody holds it."""
        return "" if self.state is None else self.state.hold

    @property
    def holder(self) -> Party | None:
        return None if self.state is None else self.state.holder

    @property
    def held_for(self) -> str:
        return shown_since(self.holder)

    @property
    def remaining(self) -> str:
        """Of the lease."""
        if self.state is None or self.state.holder is None:
            return ""
        left = self.state.remaining
        return shown_seconds(left) if math.isfinite(left) else "no lease: it ends with its process"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is known of the hold; nothing where nobody holds the lock."""
        if self.state is None or self.state.holder is None:
            return []
        fence = self.state.fence
        return [
            ("Held by", str(self.state.holder)),
            ("Held for", self.held_for or "a moment, or not known"),
            ("Lease left", self.remaining),
            ("Fence of the hold", "none" if fence is None else f"{fence.era}:{fence.number}"),
        ]

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


def shown_waiting(party: Party) -> str:
    """A process in the queue: how many callers of it wait, and for how long."""
    callers = f": {party.waiting} caller{'' if party.waiting == 1 else 's'}" if party.waiting else ""
    since = shown_since(party)
    return f"{party}{callers}{f', for {since}' if since else ''}"


def shown_since(party: Party | None) -> str:
    """For how long *party* has held or waited; "" if that is not known."""
    return "" if party is None or not party.since else shown_seconds(party.seconds())


def look(client: Callable[[], Locks], name: str) -> Sighting:
    """What there is to see of *name*. Never raises `LockError`.

    *client*: makes the client, and raises `ConfigurationError` where its settings can't work.
    """
    try:
        return Sighting(client().inspect(name))
    except LockError as error:
        return Sighting(trouble=str(error))


def is_hold(said: str) -> bool:
    """Whether *said*, by a browser, could name a hold."""
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", said) is not None


def break_seen(client: Callable[[], Locks], name: str, hold: str, by: str) -> LockState | None:
    """Break the hold of *name* that *hold* names, and nothing after it. *by*: the person, for the log.

    Returns what was broken; None, and nothing is changed, if it has ended meanwhile. Raises
    `BackendUnavailable`, `InvalidName`; `ConfigurationError` where the lock service can't do it.
    """
    locks = client()
    state = locks.inspect(name)
    if not hold or state.hold != hold:
        return None
    return state if break_lock(locks.namespace, state, printable(by)) else None
