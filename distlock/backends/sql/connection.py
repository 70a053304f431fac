"""The protocol of a connection to a database, whatever the library, and its errors."""

from __future__ import annotations

import math
import select
from contextlib import suppress
from typing import Protocol

#: The rows of one statement.
Rows = list[list[str | None]]
#: The event of a socket whose peer has shut its side. Without this event, on other systems than Linux, only a
#: reset is noticed at once. Any other end is noticed by the next renewal.
ENDED = getattr(select, "POLLRDHUP", 0)


def poll(fileno: int, events: int, seconds: float) -> int:
    """Wait for *events* of a socket, for at most *seconds*. Return the events that came."""
    poller = select.poll()
    poller.register(fileno, events)
    found = poller.poll(max(0, math.ceil(min(seconds, 3600.0) * 1000)))
    return found[0][1] if found else 0


class ServerError(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class SessionLost(Exception):
    """The session broke or ended, and its locks with it."""


class ServerConnection(Protocol):
    """One connection, used by one thread at a time, that never blocks beyond a deadline.

    Its methods raise `TimeoutError`, `ServerError` or `SessionLost`. After a `TimeoutError` the answer is
    still to come.
    """

    #: When the unanswered statements were sent; None: no answer is pending.
    since: float | None = None
    #: The descriptor of its socket, also when that is closed.
    fileno: int

    @property
    def is_closed(self) -> bool:
        """Return whether this side has closed it, for example because an interrupt left half an answer."""

    def call(self, statements: str, deadline: float) -> list[Rows]:
        """Return the rows of each of the *statements*."""
        if self.since is not None:
            # The pending answer is for a call that timed out, whose caller knows that the outcome is
            # unknown.
            with suppress(ServerError):
                self.answer(deadline)
        self.send(statements)
        return self.answer(deadline)

    def send(self, statements: str) -> None: ...

    def is_answered(self) -> bool:
        """Return whether the answer to what was sent has begun to arrive. Does not block."""

    def answer(self, deadline: float) -> list[Rows]:
        """Return the rows of the statements that were sent. Raise the first error after reading all."""

    def close(self) -> None: ...

    def forget(self) -> None:
        """Close our copy of the socket in a forked child, without ending the parent's session."""
