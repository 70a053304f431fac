"""The protocol of a connection to a database server, which is the same for all libraries, and its errors."""

from __future__ import annotations

import math
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

#: The rows of one statement.
Rows = list[list[str | None]]
#: Code that reads an answer raises these if it does not have the shape that the statements ask for.
_UNREADABLE = (struct.error, ValueError, ArithmeticError, LookupError, TypeError, AssertionError)
#: No answer to our statements has more bytes, even if hundred thousands of names are listed.
LONGEST_ANSWER = 1 << 24
#: The poll event of a socket whose peer has closed its side; 0 on systems without it, such as macOS. There,
#: only a reset is noticed at once; the next renewal notices any other end.
PEER_CLOSED = getattr(select, "POLLRDHUP", 0)


def poll(fileno: int, events: int, seconds: float) -> int:
    """Wait up to *seconds*, and up to an hour, for *events* of a socket. Return those that came; 0: none."""
    poller = select.poll()
    poller.register(fileno, events)
    found = poller.poll(max(0, math.ceil(min(seconds, 3600.0) * 1000)))
    return found[0][1] if found else 0


class ServerError(Exception):
    """The server answered with an error. *code*: PostgreSQL's SQLSTATE, MySQL's number, or ""."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class SessionLost(Exception):
    """The session could not be opened, broke, or ended. Its locks end with it."""


@contextmanager
def reading() -> Iterator[None]:
    """Raise `SessionLost` if the block, which only reads an answer, can't read it.

    Something on the way has changed that answer, so the next ones may be those of other statements.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise SessionLost(f"an answer can't be read: {error!a:.200}") from error


class ServerConnection(Protocol):
    """One connection to a server. One thread at a time uses it.

    Its methods raise `TimeoutError`, `ServerError` or `SessionLost`. They raise `TimeoutError` if the answer
    has not come by *deadline*, a time by `distlock.clock.now` (on MariaDB and MySQL: if it has not begun).
    The answer is then still pending.
    """

    #: When the unanswered statements were sent; None: no answer is pending.
    sent_at: float | None = None
    #: The descriptor of the socket. It keeps its number after a close.
    fileno: int

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or known to be broken. An interrupt in an answer may close it."""

    def call(self, statements: str, deadline: float) -> list[Rows]:
        """Send *statements*, and return the rows of each."""
        if self.sent_at is not None:
            # Read and drop the answer to an earlier call that timed out. That call's caller knows that the
            # outcome is unknown.
            with suppress(ServerError):
                self.answer(deadline)
        self.send(statements)
        return self.answer(deadline)

    def send(self, statements: str) -> None: ...

    def is_answered(self) -> bool:
        """Return whether the answer to the statements that were sent has begun to arrive. Does not block.

        Raises `SessionLost` if the session has ended.
        """

    def answer(self, deadline: float) -> list[Rows]:
        """Wait for the pending answer, and return the rows of each statement.

        An error of a statement is raised when the whole answer is read.
        """

    def close(self) -> None: ...

    def forget(self) -> None:
        """In a forked child, close its copy of the socket without ending the parent's session."""
