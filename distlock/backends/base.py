"""The protocol between the engine and a lock service.

The process is the contender: for one key it has at most one `Ask` under way, and what an ask was granted
is a *hold*, from which the engine carves grants for its threads and tasks. No call waits for a lock.
Every call can be repeated without harm, because the caller makes the token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a lock service can do. Asking for what it can't is refused when configured, not when used."""

    several_processes: bool
    several_hosts: bool
    #: A hold has a lifetime that ends by itself unless it is renewed.
    lease: bool
    #: Holds and queue outlive a restart of the lock service.
    survives_restart: bool
    #: Processes are served in the order of their asks.
    fair: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """One process asking for one key."""

    #: Prefix and name, as text; a backend encodes it for itself.
    key: str
    #: The secret that proves the hold. The same for every repetition of this ask, never used for another.
    token: str
    #: Lifetime of the hold without renewal, seconds.
    ttl: float
    #: How many numbers the hold reserves, for the fences of its grants: from `Held.number` on.
    span: int
    #: False: answer `Busy` instead of queueing.
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """The hold is ours, acknowledged, and lives for *ttl* seconds from the moment that we asked."""

    #: The first number of its block.
    number: int
    ttl: float = math.inf


@dataclass(frozen=True, slots=True)
class Queued:
    """Somebody is before us. Ask again at a hint, or after *poll* seconds: the net under a lost hint."""

    poll: float


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody is before us, and we did not want to queue."""


class Sink(Protocol):
    """Where a backend tells what it heard. Called from any thread; returns at once; never raises."""

    def hint(self, key: str) -> None:
        """It is worth asking for *key* again."""

    def lost(self, key: str, token: str) -> None:
        """The hold is no longer ours."""

    def doubt(self) -> None:
        """The connection broke or came back: hints may be missing, so every ask and hold wants a look."""


class Backend(Protocol):
    """One client of one lock service. Threads share it. It connects at first use, not before.

    Every method but `open`, `close` and `after_fork` does I/O, bounded in time by the backend itself, and
    raises `BackendUnavailable` when the service does not answer: then nothing is known of what it did.

    *deadline* is the moment, on `distlock.clock.now`, after which the answer is of no use to the caller any
    more: the call ends by then, however the service behaves, connecting and repetitions included.
    """

    capabilities: Capabilities

    def open(self, sink: Sink) -> None:
        """Take the sink. Connects to nothing."""

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        """Ask, ask again (the poll), acknowledge: `Held` as soon and as long as the hold is *ask.token*'s.

        A token that was released, cancelled or lost before is a new ask at the end of the queue.
        """

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        """Leave the queue. True if the hold is *ask.token*'s already, and is kept; else False."""

    def renew(self, asks: Sequence[Ask]) -> Sequence[bool | None]:
        """Start the holds' lifetimes anew. False for each that is no longer ours.

        None for each of which nothing is known, where others were renewed.
        """

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        """Give the hold back and hand it over to the next process, in one step. False if it was not ours."""

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        """Give *ask.token*'s hold a new block of numbers, above *number*; later holds get larger ones.

        It starts the lifetime anew, too. A hold that is above *number* already keeps its block, so a
        repetition changes nothing. None if the hold is not ours. Raises `ConfigurationError` if the service
        can't count so far.
        """

    def locked(self, key: str) -> bool:
        """Whether anybody holds *key* just now."""

    def close(self) -> None:
        """Drop connections, threads and what this client still queues for. It may be opened again."""

    def after_fork(self) -> None:
        """In a forked child: forget everything inherited, close nothing that the parent still uses."""
