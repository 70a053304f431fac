"""Signals about locks. Their sender is the app. A receiver that raises is logged, and changes nothing.

The first four are about guards: decorators and rules. All of their receivers get ``where``, the module and
name of the guarded function or the rule; ``alias``, which lock service; and ``names``, what is locked.

Receivers are plain functions and run where the guard runs, the first of them while the lock is held: they
should return soon.
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
    """A signal that takes no async receivers: a guard in the event loop could not wait for them."""

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        if inspect.iscoroutinefunction(receiver):
            raise TypeError(
                f"{receiver.__qualname__} is async, and the signals of locks call plain functions: write "
                "'def', and start a task in it where you have to."
            )
        return super().connect(receiver, sender, weak)


#: Also ``grant``, and ``waited``, seconds.
lock_acquired = LockSignal("lock-acquired")

#: It has to wait. Also ``holder``, a `distlock.operate.Party`: what is known of the holder without asking;
#: None: nothing. Where the lock is a row it is not sent.
lock_contended = LockSignal("lock-contended")

#: The lock was not acquired. Also ``error``, a `LockError` that says why, and ``waited``, seconds.
lock_refused = LockSignal("lock-refused")

#: After COMMIT or ROLLBACK. Also ``grant``, and ``held``, seconds.
lock_released = LockSignal("lock-released")

#: A lock was lost while it was held, by a guard or by anybody else: ``alias``, ``names``, ``grant``, and
#: ``why``, as text. Sent as soon as it is known, from another thread.
lock_lost = LockSignal("lock-lost")

#: The release of a held lock was requested, of a guard or any other: ``alias``, ``names``, ``grant``.
#: See `distlock.Locks.request_release`. Sent from a thread of its own.
lock_release_requested = LockSignal("lock-release-requested")

#: A fence had fallen behind the database's, for the lock service has lost data, and was lifted above it:
#: ``alias``, ``names``, ``grant``, and ``was``, its fence before. Sent inside the fenced transaction.
fence_lifted = LockSignal("fence-lifted")


def send(signal: NamedSignal, app: Flask, **what: Any) -> None:
    """Tell the receivers of *signal*. Never raises."""
    for receiver in signal.receivers_for(app):
        try:
            receiver(app, **what)
        except Exception:
            # The lock has to be released, and the others have to be told.
            logger.exception("A receiver of the signal %r failed.", signal.name)
