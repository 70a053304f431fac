"""Who is told what became of a guard's lock: the signals, and the ``Server-Timing`` header."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Flask, Response, current_app, g, has_request_context

from distlock.errors import LockError
from distlock.grant import Grant
from distlock.web.observer import Observer
from distlock.web.timing import Stopwatch
from flask_distlock import signals

SERVER_TIMING = "DISTLOCK_SERVER_TIMING"

_STOPWATCHES = "_distlock_stopwatches"


def observer_of(where: str) -> Observer | None:
    """The observer for one call of the guarded function *where*; None if nobody wants to know."""
    stopwatch = None
    if current_app.config.get(SERVER_TIMING) and has_request_context():
        stopwatch = Stopwatch()
        g.setdefault(_STOPWATCHES, []).append(stopwatch)
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    return Teller(app, where, stopwatch) if signals.heard(app) else stopwatch


def write_timing(response: Response) -> Response:
    """Say in the response what the guards of its request measured."""
    # Popped: an app context that a script has pushed serves many requests.
    for stopwatch in g.pop(_STOPWATCHES, ()):
        if value := stopwatch.header(response.headers.get("Server-Timing", "")):
            response.headers["Server-Timing"] = value
    return response


class Teller:
    """Sends the signals of one guard, and passes on to *stopwatch*."""

    def __init__(self, app: Flask, where: str, stopwatch: Stopwatch | None) -> None:
        self._app, self._where, self._stopwatch = app, where, stopwatch

    def acquired(self, grant: Grant, waited: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.acquired(grant, waited)
        signals.send(signals.lock_acquired, self._app, grant=grant, waited=waited, where=self._where)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.refused(names, error, waited)
        signals.send(
            signals.lock_refused, self._app, names=names, error=error, waited=waited, where=self._where
        )

    def released(self, grant: Grant, held: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.released(grant, held)
        signals.send(signals.lock_released, self._app, grant=grant, held=held, where=self._where)
