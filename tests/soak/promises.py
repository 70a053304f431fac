"""The judge of a soak gets the promises of a lock service from here, and finds breaches of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tests.soak.notes import NAMES_IN_FILES


@dataclass(frozen=True, slots=True)
class Promises:
    """The promises on the page of a lock service, and how busy the machine is. Times are in seconds.

    *patience*: how long a lock may be free while callers wait. *killed*, *stopped*: how long a process that
    is killed, or stands still, may keep a lock from others; ``inf``: until it goes on. *slack*: for how
    much longer calls may fail after a fault. *in_files*: whether the lock service is a directory.
    *in_turns*: whether processes have a lock in turns. *tasks_share*: whether the tasks of a process share
    a connection, which is given up if one of them gets no answer in its time.
    """

    patience: float
    killed: float
    stopped: float
    slack: float = 0.0
    in_files: bool = False
    in_turns: bool = True
    tasks_share: bool = False

    def about(self, name: str) -> Promises:
        """Return what is promised for the lock *name*, which may be in a directory."""
        if name not in NAMES_IN_FILES or self.in_files:
            return self
        return replace(self, killed=0.0, stopped=math.inf, in_files=True)


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. *admitted*: the documentation says that a loss of data may do this."""

    rule: str
    said: str
    at: float
    admitted: bool = False
