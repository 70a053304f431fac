"""The protocol between the engine and a lock service.

The process is the contender: for each key it has at most one `LockRequest` at a time. A granted request is a
*hold*, from which the engine makes grants for its threads and tasks. No call waits for a lock. Every call can
be repeated without harm, because the caller generates the token.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from distlock.backends.known import word_of
from distlock.errors import ConfigurationError
from distlock.terms import EXCLUSIVE as EXCLUSIVE
from distlock.terms import PERMIT as PERMIT
from distlock.terms import READ as READ
from distlock.terms import Mode as Mode


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a lock service beyond the protocol, declared by its backend's class.

    A feature that needs a missing capability is refused at configuration: see `refuse_lacking`. A new
    capability is a field here, False by default (except `fair`), with a line in `_LACKING`, and is checked
    wherever a user may ask for the feature.
    """

    #: Its locks exclude other processes, too.
    several_processes: bool = False
    #: A hold expires unless it is renewed. Without this a `ttl` has no meaning: a hold ends with its process.
    lease: bool = False
    #: Later holds of a key have larger numbers, which can serve as fences.
    fence: bool = False
    #: It serves processes in the order in which they come. Without this, waiters get no notifications, but
    #: poll, and the first one that polls a free lock gets it.
    fair: bool = True
    #: It shows who holds a lock and who waits. Its backend is an `Inspectable`, too.
    inspect: bool = False
    #: It lets an operator break one hold. Its backend is a `distlock.backends.inspectable.Breaks`, too.
    breaks: bool = False
    #: A holder can be asked to release a key. The backend is a `distlock.backends.protocols.Notifies`, too.
    notify: bool = False
    #: Several may hold a key in the mode `READ`. The backend is a `distlock.backends.protocols.Reads`, too.
    read: bool = False
    #: Several may hold a key in the mode `PERMIT`, up to a limit: see `distlock.backends.protocols.Reads`.
    permits: bool = False
    #: It has latches. Its backend is a `distlock.backends.latches.Latches`, too.
    latch: bool = False


#: Capability -> what a lock service without it can't do, and a remedy, for the error of `refuse_lacking`.
_LACKING = {
    "fence": (
        "its later locks have no larger numbers, by which a database could tell them from earlier ones",
        "Leave the fence out",
    ),
    "inspect": ("it does not tell who holds a lock", "Look there by its own means"),
    "breaks": (
        "it can't end one lock of another process and nothing else",
        "See what 'distlock show' has for that",
    ),
    "notify": (
        "it does not tell a holder that its lock is wanted back",
        "Leave a word where your own code looks for it",
    ),
    "read": ("it has no locks that readers share", "Take the lock as a whole"),
    "permits": ("it has no semaphores", "Take a lock, which one holds at a time"),
    "latch": ("it has none", "Do without it"),
}


def refuse_lacking(backend: str | Backend, capabilities: Capabilities, capability: str, wish: str) -> None:
    """Raise `ConfigurationError` unless *capabilities* have *capability*.

    *backend*: the backend, or a user's word for it. *wish*: the argument or call that needs the capability,
    for the message.
    """
    if not getattr(capabilities, capability):
        why, remedy = _LACKING[capability]
        called = backend if isinstance(backend, str) else word_of(backend)
        raise ConfigurationError(
            f"{wish} can't be had from the backend {called!r}: {why}. "
            f"{remedy}, or name another lock service, such as redis://."
        )


@dataclass(slots=True)
class LockRequest:
    """A request of one process for one key, and all its repetitions.

    Only `prompt`, which the engine sets before each call, and the backend's notes change. The class is not
    frozen, because that would cost a microsecond.
    """

    #: Prefix and name, as text; a backend encodes it for itself.
    key: str
    #: The secret that proves the hold. Repetitions have the same one; no other request ever has it.
    token: str
    #: The lifetime of the hold without renewal, in seconds.
    ttl: float
    #: How many fence numbers the hold reserves for its grants, from `Acquired.number` on.
    span: int
    #: False: answer `Busy` instead of queueing.
    wait: bool = True
    mode: Mode = EXCLUSIVE
    #: For `PERMIT`: how many permits there are, as far as this process knows.
    limit: int = 1
    #: For `PERMIT`: how many permits this requests.
    permits: int = 1
    #: Whether its waiter is a thread, which wakes unless the whole process hangs. If so, a hold that is
    #: handed off may be acknowledged before the waiter runs.
    prompt: bool = field(default=False, compare=False, repr=False)
    #: A note of the backend: the first number of the hold; 0: it is unknown.
    number: int = field(default=0, compare=False, repr=False)
    #: A note of the backend: how many repetitions were sent and not answered. The lock service may carry them
    #: out late, even after a cancellation.
    unanswered: int = field(default=0, compare=False, repr=False)


@dataclass(slots=True)
class Acquired:
    """The hold is ours and acknowledged. It lives for *ttl* seconds from the moment of the request."""

    #: The first number of the hold's block.
    number: int
    ttl: float = math.inf
    #: For `READ`: whether other processes wait for the key, so that no more readers may join the hold.
    followed: bool = False
    #: For `PERMIT`: the limit of another request for the key, by this or another process, if it differs from
    #: this request's; 0: no such limit is known.
    other_limit: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """Other processes are before us. Send the request again when notified, or after *poll* seconds.

    The poll is for the case that a notification is lost.
    """

    poll: float


@dataclass(frozen=True, slots=True)
class Busy:
    """Other processes are before us, and the request does not wait."""


class Sink(Protocol):
    """The receiver of a backend's events. Any thread calls it. Its methods return at once and never raise."""

    def notified(self, key: str) -> None:
        """Send the request for *key* again, because its state on the lock service may have changed."""

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        """Accept that the hold of *key* is now *token*'s, with *number*: see `PushesHolds`.

        The hold was granted after the time *sent*, by `distlock.clock.now`. This process has sent no request
        for *key* since then.
        """

    def lost(self, key: str, token: str) -> None:
        """Accept that the hold is no longer ours."""

    def release_requested(self, key: str, token: str) -> None:
        """Handle a request to release: see `distlock.backends.protocols.Notifies`. The hold stays ours."""

    def missed_notifications(self) -> None:
        """Look at every request and hold.

        Called when the connection broke or came back, and for a message that does not say which hold it is
        about.
        """

    def reconnected(self) -> None:
        """Count a connection that replaced a broken one, for metrics."""


class WeakSink:
    """A sink that passes all events on to *sink*, or does nothing if *sink* is None.

    Its reference to *sink* is weak, so that a backend's threads keep no dropped client alive.
    """

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink: Callable[[], Sink | None] = weakref.ref(sink) if sink is not None else lambda: None

    def notified(self, key: str) -> None:
        if (sink := self._sink()) is not None:
            sink.notified(key)

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        if (sink := self._sink()) is not None:
            sink.handed_off(key, token, number, sent)

    def lost(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.lost(key, token)

    def release_requested(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.release_requested(key, token)

    def missed_notifications(self) -> None:
        if (sink := self._sink()) is not None:
            sink.missed_notifications()

    def reconnected(self) -> None:
        if (sink := self._sink()) is not None:
            sink.reconnected()


class Backend(Protocol):
    """A client's connection to its lock service. Thread-safe. It connects when it is first used.

    Every method but `open`, `close` and `after_fork` does I/O, bounded in time by the backend itself, and
    raises `BackendUnavailable` when the lock service does not answer. The effect of the call is unknown then.

    *deadline* is a time by `distlock.clock.now`. The call ends by then, whatever the lock service does,
    connecting and repetitions included.
    """

    #: Read from the class, before there is an instance.
    capabilities: Capabilities

    def open(self, sink: Sink) -> None:
        """Set the sink. Called once, before all other methods. Connects to nothing."""

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        """Request the lock, poll for it, or acknowledge it: all three are the same call.

        Return `Acquired` as soon as the hold is *request.token*'s, and for as long as it is. A token that was
        released, cancelled or lost before is a new request at the end of the queue.
        """

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """Leave the queue. But if the hold is *request.token*'s already, keep it, and return True."""

    def renew(self, requests: Sequence[LockRequest]) -> Sequence[bool | None]:
        """Restart the lifetimes of the holds. Return False for each that is no longer ours.

        Return None for each whose state is unknown. Raise only if all states are unknown.
        """

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """Release the hold and hand it off to the next process, in one step.

        Return False if it was not ours.
        """

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        """Give the hold a new block of numbers, above *number*. Later holds get larger ones.

        The call restarts the lifetime, too. A hold whose block is above *number* already keeps it, so a
        repetition changes nothing. Return None if the hold is not ours.

        Raises:
            ConfigurationError: The lock service can't count so far.
        """

    def locked(self, key: str) -> bool:
        """Return whether anybody holds *key*."""

    def close(self) -> None:
        """Leave every queue, and close all connections, descriptors and threads.

        A lock that is handed off to this process meanwhile is handed on. The time is bounded, even if the
        lock service does not answer. A call in progress ends with its answer or `BackendUnavailable`.
        Remaining holds end at once or with their leases, so release them before.

        A second close does nothing. The next call begins anew with the same sink, like the first call after
        `open`. Requests from before the close are not in a queue any more.
        """

    def after_fork(self) -> None:
        """Forget everything inherited, in a forked child. Close nothing that the parent still uses."""
