"""Signals about locks. Their sender is the app.

The first four are about guards, which are decorators and rules. Their receivers run in the guard's thread, so
they should return soon; those of ``lock_acquired`` run while the lock is held. They get ``where``, which is
the module and name of the guarded function, or "the rule for …"; ``alias``, the lock service; and ``names``,
the names to lock.

Receivers are plain functions. If one raises, the exception is logged and ignored.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from blinker import ANY, NamedSignal
from flask import Flask

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("distlock")


class LockSignal(NamedSignal):
    """A signal that refuses async receivers, because a guard in the event loop could not wait for them."""

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        if inspect.iscoroutinefunction(receiver):
            raise TypeError(
                f"{receiver.__qualname__} is async, and the signals of locks call plain functions: write "
                "'def', and start a task in it where you have to."
            )
        return super().connect(receiver, sender, weak)


#: The lock was acquired. Also sends ``grant``, and ``waited``, seconds.
lock_acquired = LockSignal("lock-acquired")

#: The lock is taken, and the guard waits for it. Also sends ``holder``, a `distlock.operate.Party`, or None
#: if this process does not know the holder. If the lock is a row, a wait in the database sends nothing.
lock_contended = LockSignal("lock-contended")

#: The lock was not acquired. Also sends ``error``, a `LockError` that says why, and ``waited``, seconds.
lock_refused = LockSignal("lock-refused")

#: The lock was released after COMMIT or ROLLBACK, or was lost before. Also sends ``grant``, and ``held``,
#: seconds.
lock_released = LockSignal("lock-released")

#: A held lock was lost, a guard's or any other. Sends ``alias``, ``names``, ``grant``, and ``why``, as text.
#: Sent as soon as the loss is known, mostly from a thread of its own.
lock_lost = LockSignal("lock-lost")

#: The release of a held lock was requested, a guard's or any other: see `distlock.Locks.request_release`.
#: Sends ``alias``, ``names``, ``grant``. Sent from a thread of its own.
lock_release_requested = LockSignal("lock-release-requested")

#: A fence was raised above the database's, because the lock service had lost data. Sends ``alias``,
#: ``names``, ``grant``, and ``was``, the fence before. Sent inside the fenced transaction.
fence_lifted = LockSignal("fence-lifted")


def send(signal: NamedSignal, app: Flask, **what: Any) -> None:
    """Call the receivers of *signal*. Never raises."""
    for receiver in signal.receivers_for(app):
        try:
            receiver(app, **what)
        except Exception:
            # Go on: the other receivers have to be called, and the lock has to be released.
            logger.exception("A receiver of the signal %r failed.", signal.name)
