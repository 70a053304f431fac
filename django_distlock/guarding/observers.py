"""Makes the observers of guards, which send signals and measure for the header ``Server-Timing``."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponseBase

from distlock.web.decorator import Guarded
from distlock.web.observer import Observer, Signals, Stopwatch, add_header, together
from django_distlock import conf
from django_distlock.guarding.placement import bound_method
from django_distlock.guarding.viewclasses import view_class
from django_distlock.private_of_others import is_api_view
from django_distlock.signals import lock_acquired, lock_contended, lock_refused, lock_released

#: The attribute of a rule's wrapper with the view that it wraps, which is the one that can be imported.
BEHIND_RULE = "__distlock_view__"

#: The signals of guards, in the order of the arguments of `Signals`.
_SIGNALS = (lock_acquired, lock_contended, lock_refused, lock_released)

#: The attribute of a request with the stopwatches of its guards.
_STOPWATCHES = "_distlock_stopwatches"


def sender_of(guarded: Guarded) -> object:
    """Return the sender of the signals of *guarded*: the view function or class, as it can be imported."""
    if (bound := bound_method(guarded.function)) is not None:
        # `method_decorator` makes a guard for each call; the class's attribute is the same for all calls.
        return getattr(type(bound.func.__self__), bound.func.__name__)
    view = getattr(guarded.wrapper, BEHIND_RULE, guarded.wrapper)
    cls = view_class(view)
    # The class that @api_view makes has no importable name.
    return view if cls is None or is_api_view(cls) else cls


def observer_for(guarded: Guarded, request: HttpRequest | None) -> Observer | None:
    """Return the observer of this call of *guarded*, or None if there is none.

    *request*: None for a plain function.
    """
    heard = (
        lock_acquired.receivers
        or lock_contended.receivers
        or lock_refused.receivers
        or lock_released.receivers
    )
    timed = request is not None and conf.server_timing()
    if not heard and not timed:
        return None
    return together(_signals(guarded, request) if heard else None, _stopwatch(request) if timed else None)


def add_server_timing(request: HttpRequest, response: HttpResponseBase) -> None:
    """Add to *response* how long the guards of *request* waited for their locks and held them."""
    add_header(getattr(request, _STOPWATCHES, ()), response.headers)


def _signals(guarded: Guarded, request: HttpRequest | None) -> Observer:
    sender = sender_of(guarded)
    sends = [partial(signal.send_robust, sender) for signal in _SIGNALS]
    return Signals(*sends, where=guarded.where, alias=guarded.told.alias, request=request)


def _stopwatch(request: HttpRequest | None) -> Observer:
    stopwatch = Stopwatch()
    request.__dict__.setdefault(_STOPWATCHES, []).append(stopwatch)
    return stopwatch
