"""The optional protocols of a backend, beyond `distlock.backends.base`.

A backend declares `Notifies` and `Reads` by a capability, and the other protocols by their methods.
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

    The request is stored beside the hold and ends with it, so that a lost message does no harm, and a later
    holder does not see it. The holder's backend calls `Sink.release_requested` at once if it gets a message;
    else in the next `Backend.renew` of the hold or, without leases, in the next `Announces.announce`. It may
    repeat the call in each of these until the hold ends.
    """

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        """Ask all current holders of *key* to release it. Return False if nobody holds it."""


@runtime_checkable
class Reads(Protocol):
    """A backend with the capability ``read``: several processes may hold a key as readers.

    A key is held by one request in the mode `EXCLUSIVE`, or by any number of requests in the mode `READ`. All
    requests for a key wait in one queue, first come, first served. A reader enters at once if no writer holds
    the key and nobody waits, and never overtakes a waiter. A released key goes to the first waiter. If that
    is a reader, the readers behind it, up to the first writer, enter, too. Each reader has a lease of its
    own.

    Readers reserve no fence numbers. A reader's `Acquired.number` is not smaller than any number given out
    for the key before, and smaller than the numbers of later writers. `raise_fence` raises it, and the
    numbers of later writers, as it does for a writer.

    **Permits** (the capability ``permits``, which needs no method). A key of permits is never requested in
    another mode. A request is granted when it is the first in the queue, and its `LockRequest.permits` plus
    the permits that are held are at most its own `LockRequest.limit`. Limits may differ during a deployment.
    A waiter that does not fit, for example because of a smaller limit, blocks those behind it. Each hold has
    a lease of its own, and a number without a meaning.

    `request`, `cancel`, `renew`, `release` and the sink work for readers and permits as for an exclusive
    hold. A hold that was handed off is acknowledged by its next `request`. Until then it lives for the
    acknowledgement window.
    """

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """Turn the exclusive hold of *request* into a reader's, with the same token, in one step.

        The hold has been acknowledged. It gets another number, because its grants may have used up its block.
        No writer comes between, and readers that are first in the queue enter. *request.mode* is `EXCLUSIVE`;
        for later calls, the engine has a copy in the mode `READ`. Return False, and change nothing, if the
        hold is not *request*'s. Return True if it is a reader's already.
        """


@runtime_checkable
class Posts(Protocol):
    """A backend that can release without waiting for the reply."""

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        """Send what `Backend.release` sends, and return without the reply, unless that is impossible now.

        *notify* is called, in any thread, unless the reply says that the hold was ours: with False if it was
        not, and with None if that is unknown, and the engine has to release again. *notify* returns at once,
        and never raises. Later calls of this backend for the same key are carried out after the release.
        """

    def settle(self, deadline: float = math.inf) -> bool:
        """Read the replies that arrive until *deadline*. Return False if some are still pending."""


@runtime_checkable
class SeesEnd(Protocol):
    """A backend whose holds end with a connection, and that notices such an end without I/O."""

    def has_ended(self, request: LockRequest) -> bool:
        """Return whether the connection with the hold of *request* is known to have ended. Sends nothing.

        The engine calls this before a local hand-off.
        """


#: The result of a `Begun` whose call would block: make the same call in a worker thread.
REPEAT: Final = object()


class Begun(asyncio.Future[Any]):
    """The future of a call that an event loop has begun. It gets the method's result or error, or `REPEAT`.

    It can't be cancelled. If a task is cancelled while it awaits this future, the cancellation takes effect
    when the call is over, because only then the call can be undone.
    """

    __slots__ = ("ends",)

    def __init__(self, loop: asyncio.AbstractEventLoop, ends: float) -> None:
        super().__init__(loop=loop)
        #: The time, by `distlock.clock.now`, at which the call is over, even if its loop is blocked.
        self.ends = ends

    def cancel(self, msg: Any = None) -> bool:
        return False


@runtime_checkable
class Awaits(Protocol):
    """A backend whose usual calls tasks can make without a thread."""

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        """Begin *call*, a method of this backend, in the running event loop, and return at once.

        *arguments*: all arguments of the method, the deadline last. Return None if nothing was sent, because
        the call would block or can't be made this way. Then a thread has to make the call.
        """


@runtime_checkable
class PushesHolds(Protocol):
    """A backend that pushes a waiter's hold (`Sink.handed_off`), so that the waiter need not poll.

    Before its acknowledgement, such a hold lives for *window* seconds.
    """

    window: float

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> Sequence[bool | None]:
        """Start the lifetimes of holds that were handed off, each with its number.

        This never grants or queues. Return False for each hold that the request does not have any more, or
        not with that number, and None for each whose state is unknown. Raise only if all states are unknown.
        """


class Sleep(Protocol):
    """The place where one waiter sleeps. A wake-up before the sleep is not lost."""

    def prepare_sleep(self) -> None:
        """Do what `wait` does before it sleeps, for a thread that will sleep at a socket instead."""

    def has_wakeup(self) -> bool:
        """Return whether there is a wake-up that was not used yet."""

    def use_wakeup(self) -> bool:
        """Use up a wake-up. Return False if there is none."""

    def wait(self, timeout: float) -> None:
        """Sleep until there is a wake-up, for at most *timeout* seconds."""


@runtime_checkable
class Hears(Protocol):
    """A backend whose waiting threads may read pushed messages, which saves the wake-up of another thread."""

    def wait(self, parker: Sleep, timeout: float) -> None:
        """Do what ``parker.wait(timeout)`` does, for a waiter that waits for a notification."""


@runtime_checkable
class LooksAhead(Protocol):
    """A backend that can tell without the lock service whether its first use would fail."""

    @staticmethod
    def refuse_unusable(url: str) -> None:
        """Raise what the first use of *url* by this process's user would raise, without making anything.

        Asks no lock service. Raises `ConfigurationError`, or `BackendUnavailable` for a failure that may
        pass.
        """


@runtime_checkable
class Prepares(Protocol):
    """A backend whose lock service has to be prepared before the first lock, by a user with more rights."""

    def prepare(self) -> str:
        """Make what is missing, such as tables. Return a sentence that says what exists now."""


@runtime_checkable
class TakesArguments(Protocol):
    """A backend that can be configured by a site's client, or arguments, of another library."""

    @staticmethod
    def url_of(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
        """Return the URL and the options for *given*, a client of that library or a dict of its arguments.

        *db*: another database of that server. Connects to nothing. Raises `ConfigurationError`.
        """
