"""What a backend may do beyond the protocol of `distlock.backends.base`. The engine looks whether it does."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Final, Protocol, runtime_checkable

from distlock.backends.base import LockRequest


@runtime_checkable
class Posts(Protocol):
    """A backend that can release without waiting for the answer, which hardly anybody needs."""

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        """As `Backend.release`, but it returns when the request is sent.

        *told*: called, in any thread, unless the answer is that the hold was ours. False: it was not. None:
        nothing is known of it, and it is to be released again. It returns at once, and never raises.
        Every later call of this backend for the same key is carried out after it.
        """

    def settle(self, deadline: float = math.inf) -> bool:
        """Read the answers that came, or come until *deadline*. False: some are still awaited."""


@runtime_checkable
class SeesEnd(Protocol):
    """A backend whose holds end with a connection, and that sees such an end without asking anybody."""

    def has_ended(self, request: LockRequest) -> bool:
        """Return whether the connection that holds *request* is known to be over. It sends nothing.

        The engine asks before it hands the hold to the next caller of this process.
        """


#: The answer of a `Begun`: it was not to be had without waiting. Have a thread make the same call.
REPEAT: Final = object()


class Begun(asyncio.Future[Any]):
    """The answer to a call that an event loop has begun: what the method returns or raises, or `REPEAT`.

    It can't be cancelled. A task that is cancelled while it awaits one hears of that when the call is over:
    only then can it be undone.
    """

    __slots__ = ("ends",)

    def __init__(self, loop: asyncio.AbstractEventLoop, ends: float) -> None:
        super().__init__(loop=loop)
        #: The moment by which it is over, on `distlock.clock.now`, also where its loop stands still.
        self.ends = ends

    def cancel(self, msg: Any = None) -> bool:
        return False


@runtime_checkable
class Awaits(Protocol):
    """A backend that an event loop can ask without a thread, where all goes as it usually does."""

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        """Send what *call*, a method of this backend, would, and return at once. In a running event loop.

        *arguments*: all that the method takes, its deadline included. None: nothing was sent, for it would
        have to wait, or there is no such way for *call*. Then a thread makes the call.
        """


@runtime_checkable
class PushesHolds(Protocol):
    """A backend that pushes the hold that a waiter was given (`Sink.handed_off`): it need not poll.

    Until it is acknowledged, such a hold lives for *window* seconds.
    """

    window: float

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> Sequence[bool | None]:
        """Start the lifetimes of holds that were handed off, each with its number.

        It never grants or queues. False for each that is not that ask's any more, or not with that number;
        None for each of which nothing is known, where others were acknowledged.
        """


class Sleep(Protocol):
    """Where one waiter sleeps. A wake-up before the sleep is not lost."""

    def begin(self) -> None:
        """It is about to sleep, by other means than `wait`."""

    def is_open(self) -> bool:
        """Whether it was woken, and did not pass through since."""

    def pass_through(self) -> bool:
        """Go through if it is open. False: it was not woken."""

    def wait(self, timeout: float) -> None:
        """Sleep until it is woken, for *timeout* seconds at most."""


@runtime_checkable
class Hears(Protocol):
    """A backend in which a thread that waits may hear itself what is pushed: one thread fewer wakes."""

    def wait(self, parker: Sleep, timeout: float) -> None:
        """As ``parker.wait(timeout)``, for one that waits for a hint."""


@runtime_checkable
class LooksAhead(Protocol):
    """A backend that can tell on this host, before its first use, that this will fail."""

    @staticmethod
    def refuse_unusable(url: str) -> None:
        """Raise what the first use of *url* by this user would raise. It makes nothing.

        It asks no lock service, and raises a `ConfigurationError`, or `BackendUnavailable` for what may pass.
        """


@runtime_checkable
class Prepares(Protocol):
    """A backend whose lock service needs something made before its first lock, by one who has the right."""

    def prepare(self) -> str:
        """Make it, unless it is there. Returns a sentence that says what is there now."""


@runtime_checkable
class TakesArguments(Protocol):
    """A backend that can be told where its lock service is by what a site has for another library."""

    @staticmethod
    def url_of(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
        """*given*, a client of that library or a dict of its arguments, as a URL, and options beside it.

        *db*: another database there. Connects to nothing. Raises `ConfigurationError`.
        """
