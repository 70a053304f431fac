"""The protocol between the engine and a lock service.

The process is the contender: for one key it has at most one `Ask` under way, and what an ask was granted
is a *hold*, from which the engine carves grants for its threads and tasks. No call waits for a lock.
Every call can be repeated without harm, because the caller makes the token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from distlock.backends.known import word_of
from distlock.errors import ConfigurationError
from distlock.modes import EXCLUSIVE as EXCLUSIVE
from distlock.modes import PERMIT as PERMIT
from distlock.modes import READ as READ
from distlock.modes import Mode as Mode


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a lock service can do beyond the protocol, declared by the class of its backend.

    Asking for what it can't do is refused when it is configured: see `refuse_lacking`. One more capability is
    a field here that is False where a backend says nothing (but for `fair`), with its line in `_LACKING`, and
    asked for wherever a user may wish for it.
    """

    #: Other processes are kept out, too.
    several_processes: bool = False
    #: A hold has a lifetime that ends by itself unless it is renewed. Elsewhere a `ttl` has no meaning: a
    #: hold ends with its process.
    lease: bool = False
    #: Later holds of a key have larger numbers, so that fences can be made of them.
    fence: bool = False
    #: First come, first served by process. Elsewhere those that wait ask again and again, and whichever asks
    #: first when it is free has it: no hint tells them when. It is so unless a backend says otherwise.
    fair: bool = True
    #: It shows who holds a lock and who waits: it is an `distlock.backends.inspectable.Inspectable`, too.
    inspect: bool = False
    #: It lets an operator break one hold: it is a `distlock.backends.inspectable.Breaks`, too.
    breaks: bool = False
    #: A holder can be asked to give a key back: it is a `distlock.backends.notifying.Notifies`, too.
    notify: bool = False
    #: Several may hold a key in the mode `READ` at once: see `distlock.backends.shared`.
    read: bool = False
    #: So many may hold a key in the mode `PERMIT` as each of them says: see `distlock.backends.shared`.
    permits: bool = False
    #: It has latches: it is a `distlock.backends.latches.Latches`, too.
    latch: bool = False


#: Capability -> what is missing without it, and what to do.
_LACKING = {
    "fence": (
        "its later locks have no larger numbers, by which a database could tell them from earlier ones",
        "Leave the fence out, or name another lock service, such as redis://.",
    ),
    "inspect": (
        "it does not tell who holds a lock",
        "Look there by its own means, or name another lock service, such as redis://.",
    ),
    "breaks": (
        "it can't end one lock of another process and nothing else",
        "See what 'distlock show' has for that, or name another lock service, such as redis://.",
    ),
    "notify": (
        "it does not tell a holder that its lock is wanted back",
        "Leave a word where your own code looks for it, or name another lock service, such as redis://.",
    ),
    "read": (
        "it has no locks that readers share",
        "Take the lock as a whole, or name another lock service, such as redis://.",
    ),
    "permits": (
        "it has no semaphores",
        "Take a lock, which one holds at a time, or name another lock service, such as redis://.",
    ),
    "latch": (
        "it has none",
        "Name a lock service that has, such as redis://.",
    ),
}


def refuse_lacking(backend: str | Backend, capabilities: Capabilities, capability: str, wish: str) -> None:
    """Raise `ConfigurationError` unless the *capabilities* of *backend* have the one that is wished for.

    *backend*: itself, or what users call it. *wish*: what the user wrote, for the message.
    """
    if not getattr(capabilities, capability):
        why, remedy = _LACKING[capability]
        called = backend if isinstance(backend, str) else word_of(backend)
        raise ConfigurationError(f"{wish} can't be had from the backend {called!r}: {why}. {remedy}")


@dataclass(slots=True)
class Ask:
    """One process asking for one key. Nobody changes what it asks for; to have Python see to that costs a
    microsecond.
    """

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
    mode: Mode = EXCLUSIVE
    #: Of a `PERMIT`: how many permits there are, as far as this process knows, and how many of them it wants.
    limit: int = 1
    permits: int = 1
    #: Its waiter sleeps in a thread, and wakes unless the whole process hangs: what it is handed may be
    #: acknowledged before it asks.
    prompt: bool = field(default=False, compare=False, repr=False)
    #: A note of its backend: the first number of the hold, as far as it was told. 0: it was not.
    number: int = field(default=0, compare=False, repr=False)
    #: Another one: so many requests were sent that are not answered. They may be carried out yet, and late:
    #: after their own repetition, and after a cancel.
    unanswered: int = field(default=0, compare=False, repr=False)


@dataclass(slots=True)
class Held:
    """The hold is ours, acknowledged, and lives for *ttl* seconds from the moment that we asked."""

    #: The first number of its block.
    number: int
    ttl: float = math.inf
    #: Of a `READ`: others wait for the key. Nobody may join the hold any more.
    followed: bool = False
    #: Of a `PERMIT`: another limit that somebody named for the key, here or elsewhere; 0: none that is known.
    other_limit: int = 0


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

    def handed(self, key: str, token: str, number: int, sent: float) -> None:
        """As `hint`, and the hold of *key* is *token*'s, with *number*: see `HandsOver`.

        It was granted after *sent*, on `distlock.clock.now`, and no later ask for *key* was sent since.
        """

    def lost(self, key: str, token: str) -> None:
        """The hold is no longer ours."""

    def release_requested(self, key: str, token: str) -> None:
        """The hold is wanted back: see `distlock.backends.notifying`. It stays ours."""

    def doubt(self) -> None:
        """The connection broke or came back: hints may be missing, so every ask and hold wants a look."""

    def reconnected(self) -> None:
        """A connection was made in the place of one that broke. Told once for each that did, for metrics."""


class Backend(Protocol):
    """What one client has of its lock service. Threads share it. It connects at first use, not before.

    Every method but `open`, `close` and `after_fork` does I/O, bounded in time by the backend itself, and
    raises `BackendUnavailable` when the lock service does not answer: then nothing is known of what it did.

    *deadline* is the moment, on `distlock.clock.now`, after which the answer is of no use to the caller any
    more: the call ends by then, however the lock service behaves, connecting and repetitions included.
    """

    #: Of its class: it is looked at before there is an instance.
    capabilities: Capabilities

    def open(self, sink: Sink) -> None:
        """Take the sink. Called once, before anything else; connects to nothing."""

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
        repetition changes nothing. None if the hold is not ours. Raises `ConfigurationError` if
        the lock service can't count so far.
        """

    def locked(self, key: str) -> bool:
        """Whether anybody holds *key* just now."""

    def close(self) -> None:
        """Leave every queue, and drop what was opened: no connection, descriptor or thread is left. A lock
        that was handed over to it meanwhile goes on to the next.

        Bounded in time, also where the lock service does not answer. A call that is under way ends, with its
        answer or with `BackendUnavailable`. What this backend holds ends at once or with its lease: release
        it before to be sure.

        A second close does nothing. The next call begins anew, as the first one after `open` did, with the
        same sink; what was asked for before the close is not queued for any more.
        """

    def after_fork(self) -> None:
        """In a forked child: forget everything inherited, close nothing that the parent still uses."""
