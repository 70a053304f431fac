"""Locks across processes and servers: `connect` to a lock service, then ``with locks.lock(name):``."""

from __future__ import annotations

from distlock.connecting import connect
from distlock.current_grants import current_grant
from distlock.errors import (
    BackendUnavailable,
    BatchFailed,
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
    TooManyWaiters,
)
from distlock.grant import Fence, Grant
from distlock.joint_grant import JointGrant
from distlock.latch import Latch
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.multi_lock import MultiLock, multi_lock
from distlock.read_lock import ReadLock
from distlock.rlock import RLock
from distlock.semaphore import Semaphore

#: The one home of the version: pyproject.toml reads it here.
__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "BatchFailed",
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
    "TooManyWaiters",
    "__version__",
    "connect",
    "current_grant",
    "multi_lock",
]
