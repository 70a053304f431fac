"""Who is told what became of a guard's lock: the signals, and the ``Server-Timing`` header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blinker import NamedSignal
from flask import Flask, Response, current_app, g, has_request_context

from distlock.errors import LockError
from distlock.grant import Grant
from distlock.web.decorator import Guarded
from distlock.web.observer import Observer
from distlock.web.timing import Stopwatch
from flask_distlock import signals

SERVER_TIMING = "DISTLOCK_SERVER_TIMING"

_STOPWATCHES = "_distlock_stopwatches"


def observer_of(guarded: Guarded) -> Observer | None:
    """The observer for one call of *guarded*; None if nobody wants to know."""
    stopwatch = None
    if current_app.config.get(SERVER_TIMING) and has_request_context():
        stopwatch = Stopwatch()
        g.setdefault(_STOPWATCHES, []).append(stopwatch)
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    return Teller(app, guarded, stopwatch) if signals.heard(app) else stopwatch


def write_timing(response: Response) -> Response:
    """Say in the response what the guards of its request measured."""
    # Popped: an app context that a script has pushed serves many requests.
    for stopwatch in g.pop(_STOPWATCHES, ()):
        if value := stopwatch.header(response.headers.get("Server-Timing", "")):
            response.headers["Server-Timing"] = value
    return response


class Teller:
    """Sends the signals of one guard, and passes on to *stopwatch*."""

    def __init__(self, app: Flask, guarded: Guarded, stopwatch: Stopwatch | None) -> None:
        self._app, self._guarded, self._stopwatch = app, guarded, stopwatch

    def acquired(self, grant: Grant, waited: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.acquired(grant, waited)
        self._send(signals.lock_acquired, grant.names, grant=grant, waited=waited)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.refused(names, error, waited)
        self._send(signals.lock_refused, names, error=error, waited=waited)

    def released(self, grant: Grant, held: float) -> None:
        if self._stopwatch is not None:
            self._stopwatch.released(grant, held)
        self._send(signals.lock_released, grant.names, grant=grant, held=held)

    def _send(self, signal: NamedSignal, names: Sequence[str], **what: Any) -> None:
        guarded = self._guarded
        signals.send(
            signal, self._app, where=guarded.where, alias=guarded.told.alias, names=tuple(names), **what
        )
