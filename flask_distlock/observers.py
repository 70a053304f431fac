"""Who observes the guards of an app: receivers of signals, and the ``Server-Timing`` header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Flask, Response, current_app, g, has_request_context

from distlock.errors import LockError
from distlock.grant import Grant
from distlock.web.decorator import Guarded
from distlock.web.observer import Observer, together
from distlock.web.timing import Stopwatch
from flask_distlock.signals import heard, lock_acquired, lock_refused, lock_released, send

SERVER_TIMING = "DISTLOCK_SERVER_TIMING"

#: Where a request keeps the stopwatches of its guards.
_STOPWATCHES = "_distlock_stopwatches"


class Signals:
    """Sends the signals of one guard in one call."""

    def __init__(self, app: Flask, guarded: Guarded) -> None:
        self._app = app
        self._about: dict[str, Any] = {"where": guarded.where, "alias": guarded.told.alias}

    def acquired(self, grant: Grant, waited: float) -> None:
        send(lock_acquired, self._app, names=grant.names, grant=grant, waited=waited, **self._about)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        send(lock_refused, self._app, names=tuple(names), error=error, waited=waited, **self._about)

    def released(self, grant: Grant, held: float) -> None:
        send(lock_released, self._app, names=grant.names, grant=grant, held=held, **self._about)


def observer_for(guarded: Guarded) -> Observer | None:
    """Who observes this call of *guarded*; None if nobody does."""
    return together(_signals(guarded), _stopwatch())


def add_server_timing(response: Response) -> Response:
    """Let *response* say how long the guards of its request waited for their locks, and held them."""
    # Popped: an app context that a script has pushed serves many requests.
    for stopwatch in g.pop(_STOPWATCHES, ()):
        if value := stopwatch.header(response.headers.get("Server-Timing", "")):
            response.headers["Server-Timing"] = value
    return response


def _signals(guarded: Guarded) -> Observer | None:
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    return Signals(app, guarded) if heard(app) else None


def _stopwatch() -> Stopwatch | None:
    if not (has_request_context() and current_app.config.get(SERVER_TIMING)):
        return None
    stopwatch = Stopwatch()
    g.setdefault(_STOPWATCHES, []).append(stopwatch)
    return stopwatch
