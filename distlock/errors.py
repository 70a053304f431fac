"""The errors that users see. Every message names the lock, the cause and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound="LockError")


class LockError(Exception):
    """The root of all errors of this package."""


class LockTimeout(LockError, TimeoutError):
    """The lock was held by others until the timeout."""


class LockLost(LockError):
    """The lock was lost before its release: its lease ended, or the lock service gave it to another."""


class LostInside(LockLost):
    """The lock of a ``with`` block was lost while the block ran. It ran to its end: what it did may stand."""


class BatchFailed(LockError):
    """The transaction that several requests shared was rolled back: nothing of them is written."""


class OutcomeUnknown(LockError):
    """Whether a transaction was committed can't be told: its connection broke, or the site ended it."""


class NotHeld(LockError, RuntimeError):
    """The caller has released or checked a lock that it does not hold."""


class BackendUnavailable(LockError):
    """The lock service does not answer. No lock was granted."""


class LatchNotFound(LockError, LookupError):
    """There is no such latch: nobody has made it, or it is over. That does not count as open."""


class InvalidName(LockError, ValueError):
    """A name that cannot be locked: empty, too long, or with characters that are not text."""


class BodyTooLarge(LockError):
    """The body of a request is larger than the limit for requests in a batch."""


class TooManyWaiters(LockError):
    """The caller was refused at once: it would most likely wait in vain, or too many others wait.

    *name*: the lock's. *expected_wait*: how long the caller would wait, seconds; None if a fixed number of
    waiters is the limit.
    """

    def __init__(self, message: str, *, name: str = "", expected_wait: float | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.expected_wait = expected_wait


class Reentered(LockError, RuntimeError):
    """A signal handler or a finaliser asked for a lock while its own thread was taking or giving back one."""


class ConfigurationError(LockError):
    """A setting, a URL or a use of the API that can never work."""


class StaleWrite(ConfigurationError):
    """A row that was loaded before its lock is saved under it: what others wrote in between is lost."""


def shown_as(public: type[LockError]) -> Callable[[type[E]], type[E]]:
    """Decorate a subclass of *public* that only our own code needs to know.

    Users see *public*: so tracebacks, logs and pickles name it.
    """

    def decorate(private: type[E]) -> type[E]:
        def reduce(self: E) -> tuple[Any, ...]:
            return public, self.args

        private.__module__, private.__qualname__ = public.__module__, public.__qualname__
        private.__name__ = public.__name__
        private.__reduce__ = reduce  # type: ignore[method-assign,assignment]
        return private

    return decorate
