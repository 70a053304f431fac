"""Signals about locks. Their sender is the app.

Receivers are called where it happens: `lock_acquired` under the lock, `lock_lost` in the keeper's thread.
One that raises is logged, and changes nothing.
"""

from __future__ import annotations

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


def connected() -> bool:
    """Whether anybody is told by guards."""
    return bool(lock_acquired.receivers or lock_refused.receivers or lock_released.receivers)


def send(signal: NamedSignal, app: Flask, **what: Any) -> None:
    """Tell the receivers of *signal*. Never raises."""
    for receiver in signal.receivers_for(app):
        try:
            app.ensure_sync(receiver)(app, **what)
        except Exception:
            # The lock has to be released, and the others have to be told.
            logger.exception("A receiver of the signal %r failed.", signal.name)
