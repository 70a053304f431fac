"""Locks across processes and servers: `connect` to a lock service, then ``with locks.lock(name):``."""

from __future__ import annotations

from distlock.connecting import connect
from distlock.errors import (
    BackendUnavailable,
    BatchFailed,
    BodyTooLarge,
    ConfigurationError,
    InvalidName,
    LatchNotFound,
    LockError,
    LockLost,
    LockTimeout,
    LostInside,
    NotHeld,
    OutcomeUnknown,
    Reentered,
    StaleWrite,
    TooManyWaiters,
)
from distlock.grants.current import current_grant
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import JointGrant
from distlock.locks.client import Locks
from distlock.locks.latch import Latch
from distlock.locks.lock import Lock, ReadLock, Semaphore
from distlock.locks.multi_lock import MultiLock, multi_lock
from distlock.locks.rlock import RLock
from distlock.suggestions import unknown_name

#: pyproject.toml reads the version here.
__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "BatchFailed",
    "BodyTooLarge",
    "ConfigurationError",
    "Fence",
    "Grant",
    "InvalidName",
    "JointGrant",
    "Latch",
    "LatchNotFound",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Locks",
    "LostInside",
    "MultiLock",
    "NotHeld",
    "OutcomeUnknown",
    "RLock",
    "ReadLock",
    "Reentered",
    "Semaphore",
    "StaleWrite",
    "TooManyWaiters",
    "__version__",
    "connect",
    "current_grant",
    "multi_lock",
]


def __getattr__(name: str) -> object:
    raise unknown_name(__name__, name)
