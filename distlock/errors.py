"""The errors that users see. A message says what happened, to which lock, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound="LockError")


class LockError(Exception):
    """The root of all errors of this package."""


class LockTimeout(LockError, TimeoutError):
    """The lock was not granted within the timeout, or the wait would have been a deadlock."""


class LockLost(LockError):
    """The lock was lost before its release. For example, its lease ended, or an operator broke it."""


class LostInside(LockLost):
    """The lock of a ``with`` block was lost while the block ran.

    The block ran to its end, so its effects may remain.
    """


class BatchFailed(LockError):
    """The transaction that several requests shared was rolled back, so none of their writes is stored."""


class OutcomeUnknown(LockError):
    """A transaction may or may not be committed: its connection broke, or the site's code ended it early."""


class NotHeld(LockError, RuntimeError):
    """The caller does not hold the lock that it releases or checks, or has no current grant."""


class BackendUnavailable(LockError):
    """The lock service does not answer. If an acquisition raises this, the caller has no lock."""


class LatchNotFound(LockError, LookupError):
    """There is no such latch: it was not made yet, or was deleted, or has expired. It is not open."""


class InvalidName(LockError, ValueError):
    """A name that cannot be locked: not a str, empty, too long, or with characters that are not text."""


class BodyTooLarge(LockError):
    """The body of a request is larger than the limit for requests in a batch."""


class TooManyWaiters(LockError):
    """The caller was refused at once: it would most likely wait in vain, or too many others wait.

    *name*: the name of the lock. *expected_wait*: how long the caller would wait, seconds; None if a fixed
    number of waiters is the limit.
    """

    def __init__(self, message: str, *, name: str = "", expected_wait: float | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.expected_wait = expected_wait


class Reentered(LockError, RuntimeError):
    """A signal handler or a finaliser called distlock while its own thread was inside distlock."""


class ConfigurationError(LockError):
    """A setting, a URL or a use of the API that can never work."""


class StaleWrite(ConfigurationError):
    """A row was loaded before its lock was granted, and is saved under the lock.

    The save would overwrite what others wrote in between.
    """


def shown_as(public: type[LockError]) -> Callable[[type[E]], type[E]]:
    """Decorate a subclass of *public* that only our own code needs to know.

    Tracebacks, logs and pickles show *public* instead of the subclass.
    """

    def decorate(private: type[E]) -> type[E]:
        def reduce(self: E) -> tuple[Any, ...]:
            return public, self.args

        private.__module__, private.__qualname__ = public.__module__, public.__qualname__
        private.__name__ = public.__name__
        private.__reduce__ = reduce  # type: ignore[method-assign,assignment]
        return private

    return decorate
