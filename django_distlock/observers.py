"""Who observes the guards of a site: receivers of signals, and the ``Server-Timing`` header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from distlock.errors import LockError
from distlock.grant import Grant
from distlock.web.decorator import Guarded
from distlock.web.observer import Observer, together
from distlock.web.timing import Stopwatch
from django_distlock import conf
from django_distlock.placement import bound_method
from django_distlock.signals import lock_acquired, lock_refused, lock_released
from django_distlock.viewclasses import is_api_view, view_class

#: Where a rule's wrapper keeps the view that it stands around: the site knows no other.
BEHIND_RULE = "__distlock_view__"

#: Where a request keeps the stopwatches of its guards.
_STOPWATCHES = "_distlock_stopwatches"


class Signals:
    """Sends the signals of one guard in one call."""

    def __init__(self, guarded: Guarded, request: HttpRequest | None) -> None:
        self._sender = sender_of(guarded)
        self._about = {"where": guarded.where, "alias": guarded.told.alias, "request": request}

    def acquired(self, grant: Grant, waited: float) -> None:
        lock_acquired.send_robust(self._sender, names=grant.names, grant=grant, waited=waited, **self._about)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        lock_refused.send_robust(self._sender, names=tuple(names), error=error, waited=waited, **self._about)

    def released(self, grant: Grant, held: float) -> None:
        lock_released.send_robust(self._sender, names=grant.names, grant=grant, held=held, **self._about)


def sender_of(guarded: Guarded) -> object:
    """What *guarded* stands on, as the modules of the site name it: a function, or the class of a view."""
    if (bound := bound_method(guarded.function)) is not None:
        # `method_decorator` makes a guard for each call, and the class has one name for all of them.
        return getattr(type(bound.func.__self__), bound.func.__name__)
    view = getattr(guarded.wrapper, BEHIND_RULE, guarded.wrapper)
    cls = view_class(view)
    # Nobody can name the class that @api_view makes.
    return view if cls is None or is_api_view(cls) else cls


def observer_for(guarded: Guarded, request: Any) -> Observer | None:
    """Who observes this call of *guarded*; None if nobody does.

    *request*: Django's, or that of REST framework around it; None for a plain function.
    """
    request = getattr(request, "_request", request)
    return together(_signals(guarded, request), _stopwatch(request))


def add_server_timing(request: HttpRequest, response: HttpResponseBase) -> None:
    """Let *response* say how long the guards of *request* waited for their locks, and held them."""
    for stopwatch in getattr(request, _STOPWATCHES, ()):
        if value := stopwatch.header(response.get("Server-Timing", "")):
            response["Server-Timing"] = value


def _signals(guarded: Guarded, request: HttpRequest | None) -> Observer | None:
    if lock_acquired.receivers or lock_refused.receivers or lock_released.receivers:
        return Signals(guarded, request)
    return None


def _stopwatch(request: HttpRequest | None) -> Observer | None:
    if request is None or not conf.server_timing():
        return None
    stopwatch = Stopwatch()
    request.__dict__.setdefault(_STOPWATCHES, []).append(stopwatch)
    return stopwatch
