"""The exit codes, for scripts. Those of sysexits.h where it has one that fits, as flock(1) does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from distlock.errors import (
    BackendUnavailable,
    ConfigurationError,
    InvalidName,
    LockError,
    LockTimeout,
    TooManyWaiters,
)

#: There was nobody to ask, or nothing to break; the doctor found an error.
NO = 1
#: The command line, or a setting, can't work.
USAGE = 2
#: The lock service does not answer.
UNAVAILABLE = 69
#: The output can't be written.
UNWRITTEN = 74
#: The lock is held by somebody else. Try again later.
TAKEN = 75
#: The lock was lost while the command ran.
LOST = 76
#: The command is there and can't be run; it is not there; it was ended by the signal that is added.
NOT_RUN, NOT_FOUND, SIGNAL = 126, 127, 128


class Failed(click.ClickException):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


def code_of(error: LockError) -> int:
    match error:
        case BackendUnavailable():
            return UNAVAILABLE
        case LockTimeout() | TooManyWaiters():
            return TAKEN
        case ConfigurationError() | InvalidName():
            return USAGE
    return LOST


@contextmanager
def told() -> Iterator[None]:
    """Print an exception of the block as one line, and exit with its code."""
    try:
        yield
    except LockError as error:
        raise Failed(str(error), code_of(error)) from error
