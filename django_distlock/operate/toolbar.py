"""The panel *Locks* of django-debug-toolbar: the locks of a request, and the SQL that ran under them.

Add its dotted path to ``DEBUG_TOOLBAR_PANELS``. Without the panel nothing is recorded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace
from distlock.terms import Terms, shown_where
from django_distlock.clients.client import watching
from django_distlock.conf import clients
from django_distlock.operate import record as record_module
from django_distlock.operate.record import RequestRecord, Taken
from django_distlock.signals import lock_acquired, lock_refused, lock_released

try:
    from debug_toolbar.panels import Panel
except ImportError as error:
    raise ImportError(
        "The panel of locks needs django-debug-toolbar. Run: pip install django-debug-toolbar"
    ) from error


class LocksPanel(Panel):  # type: ignore[misc]
    """Shows what the guards and the ``with locks.lock(...)`` blocks of one request did."""

    is_async = True
    title = nav_title = "Locks"
    template = "distlock/toolbar.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record = RequestRecord()

    @property
    def nav_subtitle(self) -> str:
        told = self.get_stats()
        count = len(told.get("locks", ()))
        if not count:
            return "none taken"
        return f"{count} {'lock' if count == 1 else 'locks'}, waited {told['waited']:.1f} ms"

    def enable_instrumentation(self) -> None:
        self.record = RequestRecord()
        record_module.begin(self.record)
        watching.set(self._watch)

    def disable_instrumentation(self) -> None:
        record_module.end(self.record)
        watching.set(None)

    def generate_stats(self, request: Any, response: Any) -> None:
        self.record_stats(self.record.told())

    def _watch(self, namespace: Namespace, terms: Terms) -> Taken:
        alias = next((one for one in clients.aliases() if clients[one].namespace is namespace), "")
        return self.record.take(alias, line_of(terms.where))


def line_of(where: str | CodeType | None) -> str:
    """Return the text of *where*, with the current line if it is code that is running, else its first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and isinstance(where, CodeType):
        if frame.f_code is where:
            return f"{where.co_qualname} ({Path(where.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return shown_where(where)


def _acquired(*, alias: str, where: str, grant: Grant, waited: float, **_: Any) -> None:
    if (record := record_module.recording.get()) is not None:
        record.take(alias, where).acquired(grant, waited)


def _refused(*, alias: str, where: str, names: Any, error: Any, waited: float, **_: Any) -> None:
    if (record := record_module.recording.get()) is not None:
        record.take(alias, where).refused(names, error, waited)


def _released(*, grant: Grant, held: float, **_: Any) -> None:
    if (record := record_module.recording.get()) is not None and (taken := record.find(grant)) is not None:
        taken.released(grant, held)


lock_acquired.connect(_acquired, dispatch_uid="distlock.toolbar")
lock_refused.connect(_refused, dispatch_uid="distlock.toolbar")
lock_released.connect(_released, dispatch_uid="distlock.toolbar")
