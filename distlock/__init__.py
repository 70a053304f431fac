"""Locks across processes and servers: `connect` to a lock service, then ``with locks.lock(name):``."""

from __future__ import annotations

from distlock.current_grants import current_grant
from distlock.errors import (
    BackendUnavailable,
    BatchFailed,
    ConfigurationError,
    InvalidName,
    LockError,
    LockLost,
    LockTimeout,
    LostInside,
    NotHeld,
    OutcomeUnknown,
    Reentered,
    TooManyWaiters,
)
from distlock.grant import Fence, Grant
from distlock.lock import Lock
from distlock.locks import Locks, connect
from distlock.rlock import RLock

#: The one home of the version: pyproject.toml reads it here.
__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "BatchFailed",
    "ConfigurationError",
    "Fence",
    "Grant",
    "InvalidName",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Locks",
    "LostInside",
    "NotHeld",
    "OutcomeUnknown",
    "RLock",
    "Reentered",
    "TooManyWaiters",
    "__version__",
    "connect",
    "current_grant",
]
