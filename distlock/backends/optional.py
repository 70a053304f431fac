"""What a backend may do beyond the protocol of `distlock.backends.base`.

The engine uses what a backend has: `Notifies` and `Reads` are declared by a capability, the other protocols
by their methods.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Final, Protocol, runtime_checkable

from distlock.backends.base import Backend, LockRequest


@runtime_checkable
class Notifies(Backend, Protocol):
    """A backend with the capability ``notify``: a holder can be asked to release a key.

    The request is stored with the hold and ends with it. So it is not lost with a message, and a later holder
    does not see it. The holder's backend notifies its sink (`Sink.release_requested`) at once if it receives
    a message. Otherwise it does so in the next `Backend.renew` of the hold or, without leases, in the next
    `Announces.announce`. It may notify the sink again each time.
    """

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        """Ask all current holders of *key* to release it. Return False if nobody holds it."""


@runtime_checkable
class Reads(Protocol):
    """A backend with the capability ``read``: several processes may hold a key as readers.

    A key is held by one request in the mode `EXCLUSIVE`, or by any number in the mode `READ`. All requests
    for it wait in one queue, first come, first served. A reader enters at once if no writer holds the key and
    nobody waits, and never overtakes a waiter. A released key goes to the first waiter. If that is a reader,
    the readers directly behind it enter, too, up to the first writer. Each reader has a lease of its own.

    Readers reserve no fence numbers. A reader's `Acquired.number` is not smaller than any number given out
    for the key before it, and smaller than those of the holds after it. `raise_fence` raises it, and the
    numbers of later writers, as it does for a writer.

    **Permits** (the capability ``permits``, which needs no method). A key of permits is never requested in
    another mode. A request is granted when it is the first in the queue, and its `LockRequest.permits` and
    the permits held are together at most its own `LockRequest.limit`. Each request has its own limit, because
    limits may differ during a deployment. A waiter with a smaller limit blocks those behind it, as any other
    waiter that does not fit. Each hold has a lease of its own, and a number without a meaning.

    `request`, `cancel`, `renew`, `release` and the sink do for readers and permits what they do for an
    exclusive hold. A reader or a permit that was handed off is acknowledged by its next `request`. Until then
    it lives for the acknowledgement window.
    """

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """Turn the exclusive hold of *request* into a reader's, with the same token, in one step.

        The hold is acknowledged. It gets another number, because its grants may have used up its block. No
        writer comes between, and readers that are first in the queue enter. *request.mode* is still
        `EXCLUSIVE`; after the answer the engine uses `READ`. Return False, and change nothing, if the hold is
        not *request*'s. Return True if it is a reader's already.
        """


@runtime_checkable
class Posts(Protocol):
    """A backend that can release without waiting for the reply."""

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        """Send what `Backend.release` sends, and return without the reply.

        *notify* is called, in any thread, unless the reply says that the hold was ours. False: it was not.
        None: that is unknown, and the engine has to release it again. It returns at once, and never raises.
        Every later call of this backend for the same key is carried out after the release.
        """

    def settle(self, deadline: float = math.inf) -> bool:
        """Read the replies that arrive until *deadline*. Return False if some are still pending."""


@runtime_checkable
class SeesEnd(Protocol):
    """A backend whose holds end with a connection, and that sees such an end without I/O."""

    def has_ended(self, request: LockRequest) -> bool:
        """Return whether the connection that holds *request* is known to be over. It sends nothing.

        The engine calls this before it hands the hold to the next caller of this process.
        """


#: The result of a `Begun` whose call would block. Make the same call in a worker thread.
REPEAT: Final = object()


class Begun(asyncio.Future[Any]):
    """The result of a call that an event loop has begun: what the method returns or raises, or `REPEAT`.

    It can't be cancelled. A task that is cancelled while it awaits one learns of that when the call is over,
    because only then can the call be undone.
    """

    __slots__ = ("ends",)

    def __init__(self, loop: asyncio.AbstractEventLoop, ends: float) -> None:
        super().__init__(loop=loop)
        #: When the call is over, by `distlock.clock.now`, even if its loop is blocked.
        self.ends = ends

    def cancel(self, msg: Any = None) -> bool:
        return False


@runtime_checkable
class Awaits(Protocol):
    """A backend that an event loop can call without a thread in the usual case."""

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        """Send what *call*, a method of this backend, would send, and return at once. In a running loop.

        *arguments*: all arguments of the method, with its deadline. Return None if nothing was sent, because
        the call would block, or *call* can't be made this way. Then a thread makes the call.
        """


@runtime_checkable
class PushesHolds(Protocol):
    """A backend that pushes a waiter's hold (`Sink.handed_off`), so that the waiter need not poll.

    Until it is acknowledged, such a hold lives for *window* seconds.
    """

    window: float

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> Sequence[bool | None]:
        """Start the lifetimes of holds that were handed off, each with its number.

        It never grants or queues. Return False for each hold that is not that request's any more, or not with
        that number, and None for each of which nothing is known while others were acknowledged.
        """


class Sleep(Protocol):
    """Where one waiter sleeps. A wake-up before the sleep is not lost."""

    def begin(self) -> None:
        """Prepare to sleep by other means than `wait`."""

    def is_open(self) -> bool:
        """Return whether it was woken since it last passed through."""

    def pass_through(self) -> bool:
        """Use up a wake-up. Return False if there is none."""

    def wait(self, timeout: float) -> None:
        """Sleep until it is woken, for *timeout* seconds at most."""


@runtime_checkable
class Hears(Protocol):
    """A backend in which a waiting thread may read pushed messages itself, so that one thread fewer wakes."""

    def wait(self, parker: Sleep, timeout: float) -> None:
        """Do the same as ``parker.wait(timeout)``, for a waiter that waits for a notification."""


@runtime_checkable
class LooksAhead(Protocol):
    """A backend that can tell on this host, before its first use, that this will fail."""

    @staticmethod
    def refuse_unusable(url: str) -> None:
        """Raise what the first use of *url* by this user would raise, without making anything.

        It asks no lock service. It raises a `ConfigurationError`, or `BackendUnavailable` for a failure that
        may pass.
        """


@runtime_checkable
class Prepares(Protocol):
    """A backend whose lock service needs something made before its first lock, by a user with the right."""

    def prepare(self) -> str:
        """Make it, unless it is there. Return a sentence that says what is there now."""


@runtime_checkable
class TakesArguments(Protocol):
    """A backend that can be configured by what a site has for another library."""

    @staticmethod
    def url_of(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
        """Return *given*, a client of that library or a dict of its arguments, as a URL, and more options.

        *db*: another database there. Connects to nothing. Raises `ConfigurationError`.
        """
