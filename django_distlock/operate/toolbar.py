"""The panel *Locks* of django-debug-toolbar: which locks a request took, and what SQL ran under them.

Its dotted path goes into ``DEBUG_TOOLBAR_PANELS``. Nothing is recorded without it.
"""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from django.db import connections

from distlock.grant import Grant
from distlock.namespace import Namespace
from distlock.terms import Terms, shown_where
from django_distlock.clients.observed import watching
from django_distlock.conf import clients
from django_distlock.operate.record import Record, Taken
from django_distlock.signals import lock_acquired, lock_refused, lock_released

try:
    from debug_toolbar.panels import Panel
except ImportError as error:
    raise ImportError(
        "The panel of locks needs django-debug-toolbar. Run: pip install django-debug-toolbar"
    ) from error

_recording: ContextVar[Record | None] = ContextVar("distlock_record", default=None)


class LocksPanel(Panel):  # type: ignore[misc]
    """Shows what the guards and the ``with locks.lock(...)`` blocks of one request did."""

    is_async = True
    title = nav_title = "Locks"
    template = "distlock/toolbar.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record = Record()
        self._instruments = ExitStack()

    @property
    def nav_subtitle(self) -> str:
        told = self.get_stats()
        count = len(told.get("locks", ()))
        if not count:
            return "none taken"
        return f"{count} {'lock' if count == 1 else 'locks'}, waited {told['waited']:.1f} ms"

    def enable_instrumentation(self) -> None:
        self.record = Record()
        _recording.set(self.record)
        watching.set(self._watch)
        for connection in connections.all():
            self._instruments.enter_context(connection.execute_wrapper(self.record.execute))

    def disable_instrumentation(self) -> None:
        self._instruments.close()
        _recording.set(None)
        watching.set(None)

    def generate_stats(self, request: Any, response: Any) -> None:
        self.record_stats(self.record.told())

    def _watch(self, namespace: Namespace, terms: Terms) -> Taken:
        alias = next((one for one in clients.aliases() if clients[one].namespace is namespace), "")
        return self.record.take(alias, shown_where(terms.where))


def _acquired(*, alias: str, where: str, grant: Grant, waited: float, **_: Any) -> None:
    if (record := _recording.get()) is not None:
        record.take(alias, where).acquired(grant, waited)


def _refused(*, alias: str, where: str, names: Any, error: Any, waited: float, **_: Any) -> None:
    if (record := _recording.get()) is not None:
        record.take(alias, where).refused(names, error, waited)


def _released(*, grant: Grant, held: float, **_: Any) -> None:
    if (record := _recording.get()) is not None and (taken := record.find(grant)) is not None:
        taken.released(grant, held)


lock_acquired.connect(_acquired, dispatch_uid="distlock.toolbar")
lock_refused.connect(_refused, dispatch_uid="distlock.toolbar")
lock_released.connect(_released, dispatch_uid="distlock.toolbar")
