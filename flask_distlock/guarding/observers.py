"""The observers of an app's guards: receivers of signals, and the ``Server-Timing`` header."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flask import Flask, current_app, g, has_request_context

from distlock.web.decorator import Guarded
from distlock.web.observer import Observer, Signals, together
from distlock.web.timing import Stopwatch
from flask_distlock.signals import lock_acquired, lock_contended, lock_refused, lock_released, send

SERVER_TIMING = "DISTLOCK_SERVER_TIMING"

#: The signals of guards, in the order of `Signals`.
_SIGNALS = (lock_acquired, lock_contended, lock_refused, lock_released)

#: Where a request keeps the stopwatches of its guards.
_STOPWATCHES = "_distlock_stopwatches"


def observer_for(guarded: Guarded) -> Observer | None:
    """Return the observer of this call of *guarded*, or None."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    timed = app.config.get(SERVER_TIMING) and has_request_context()
    listened = any(signal.has_receivers_for(app) for signal in _SIGNALS)
    if not timed and not listened:
        return None
    return together(_signals(app, guarded) if listened else None, _stopwatch() if timed else None)


def stopwatches_of_request() -> Sequence[Stopwatch]:
    """Return the stopwatches of the guards of the current request, once."""
    # Popped: an app context that a script has pushed serves many requests.
    stopwatches: Sequence[Stopwatch] = g.pop(_STOPWATCHES, ())
    return stopwatches


def _signals(app: Flask, guarded: Guarded) -> Observer:
    sends = (partial(send, signal, app) for signal in _SIGNALS)
    return Signals(*sends, where=guarded.where, alias=guarded.told.alias)


def _stopwatch() -> Stopwatch:
    stopwatch = Stopwatch()
    g.setdefault(_STOPWATCHES, []).append(stopwatch)
    return stopwatch
