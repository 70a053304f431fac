"""Signals about locks. Their sender is the app.

Receivers are plain functions, called where it happens: those of `lock_acquired` under the lock, those of
`lock_lost` in the keeper's thread.
One that raises is logged, and changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

from blinker import NamedSignal, Namespace
from flask import Flask

logger = logging.getLogger("distlock")

_signals = Namespace()

#: A guard got its lock: ``grant``, ``waited`` (seconds), ``where`` (the guarded function).
lock_acquired = _signals.signal("lock-acquired")

#: A guard did not get it: ``names``, ``error`` (a `LockError`), ``waited``, ``where``.
lock_refused = _signals.signal("lock-refused")

#: A guard gave it back, after COMMIT or ROLLBACK: ``grant``, ``held`` (seconds), ``where``.
lock_released = _signals.signal("lock-released")

#: Any lock of the app's clients was lost: ``alias``, ``grant``, ``why``.
lock_lost = _signals.signal("lock-lost")


def heard(app: Flask) -> bool:
    """Whether anybody listens to the guards of *app*."""
    return any(signal.has_receivers_for(app) for signal in (lock_acquired, lock_refused, lock_released))


def send(signal: NamedSignal, app: Flask, **what: Any) -> None:
    """Tell the receivers of *signal*. Never raises."""
    for receiver in signal.receivers_for(app):
        try:
            if inspect.iscoroutine(answer := receiver(app, **what)):
                answer.close()
                raise TypeError("It is async, and nobody can await it here: connect a plain function.")
        except Exception:
            # The lock has to be released, and the others have to be told.
            logger.exception("A receiver of the signal %r failed.", signal.name)
