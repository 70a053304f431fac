"""The panel *Locks* of django-debug-toolbar: a request's locks, and its SQL with the locks held meanwhile.

Add ``"django_distlock.operate.toolbar.LocksPanel"`` to ``DEBUG_TOOLBAR_PANELS``. Without the panel nothing is
recorded. A statement belongs to the request in whose context it runs. A thread that a view starts has no such
context: each request that is recorded at that time counts the thread's statements as `unassigned`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.signals import connection_created

from distlock.clock import now
from distlock.grants.grant import Grant
from distlock.listening import Attempt, Listener
from distlock.locks.namespace import Namespace
from distlock.terms import EXCLUSIVE, PERMIT, shown_where
from django_distlock.clients.client import listener_maker
from django_distlock.conf import clients
from django_distlock.private import wrappers_of
from django_distlock.signals import lock_acquired, lock_refused, lock_released

try:
    from debug_toolbar.panels import Panel
except ImportError as error:
    raise ImportError(
        "The panel of locks needs django-debug-toolbar. Run: pip install django-debug-toolbar"
    ) from error

#: The most acquisitions, and the most statements, that are recorded of one request.
MOST = 500
#: The most characters of a statement that are recorded.
LONGEST = 1_000


@dataclass(slots=True, eq=False)
class AcquisitionRecord(Attempt):
    """One acquisition in a request, as its guard or ``with`` block reports it."""

    alias: str
    where: str
    names: tuple[str, ...]
    #: Seconds.
    waited: float = 0.0
    #: Seconds; None: the lock is still held, or was never granted.
    held: float | None = None
    grant: Grant | None = None
    fences: str = ""
    #: "" for an exclusive lock.
    mode: str = ""
    #: Why the lock was not granted, or how it was lost; "" if neither happened.
    trouble: str = ""

    @property
    def is_open(self) -> bool:
        return self.grant is not None and self.held is None and not self.grant.released

    def acquired(self, grant: Grant, waited: float) -> None:
        self.grant, self.waited = grant, waited
        self.mode = "" if grant.mode == EXCLUSIVE else grant.mode
        if grant.mode == PERMIT:
            # Permits have no fence.
            return
        # If the lock is a row, this is called after BEGIN, so the fences are known.
        self.fences = ", ".join(f"{fence.epoch}:{fence.number}" for fence in grant.fences.values())

    def refused(self, error: BaseException | None, waited: float) -> None:
        self.waited, self.trouble = waited, str(error or "It stayed taken.")

    def released(self, held: float) -> None:
        self.held, self.trouble = held, (self.grant and self.grant.why_lost) or ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL."""

    #: Seconds from the beginning of the request to that of the statement.
    at: float
    #: Seconds.
    took: float
    database: str
    sql: str
    #: The names of the locks that the request held.
    under: tuple[str, ...]
    in_transaction: bool
    #: The name of the thread; "" for the thread that began the request.
    thread: str = ""


@dataclass(eq=False)
class RequestRecord:
    """The locks and statements of one request."""

    began: float = field(default_factory=now)
    locks: list[AcquisitionRecord] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    #: The number of statements beyond `MOST`.
    left_out: int = 0
    #: The number of statements that were sent meanwhile outside the context of any recorded request.
    unassigned: int = 0
    thread: threading.Thread = field(default_factory=threading.current_thread)

    def new_record(self, alias: str, where: str, names: Sequence[str]) -> AcquisitionRecord:
        """Return a new record of an acquisition. It is shown unless the request has `MOST` already."""
        taken = AcquisitionRecord(alias, where, tuple(names))
        if len(self.locks) < MOST:
            self.locks.append(taken)
        return taken

    def execute(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Execute and record the statement *sql*. The arguments are those of Django's execute wrappers."""
        under = tuple(name for taken in self.locks if taken.is_open for name in taken.names)
        connection, before = context["connection"], now()
        try:
            return execute(sql, params, many, context)
        finally:
            if len(self.statements) < MOST:
                at, took, thread = before - self.began, now() - before, threading.current_thread()
                name, text = "" if thread is self.thread else thread.name, str(sql)[:LONGEST]
                self.statements.append(
                    Statement(at, took, connection.alias, text, under, connection.in_atomic_block, name)
                )
            else:
                self.left_out += 1

    def as_json(self) -> dict[str, Any]:
        """Return what the toolbar stores, in JSON's types only. Times are in milliseconds."""
        return {
            "locks": [
                {name: getattr(one, name) for name in ("alias", "where", "fences", "mode", "trouble")}
                | {"names": list(one.names), "granted": one.grant is not None}
                | {"waited": _milliseconds(one.waited), "held": _milliseconds(one.held)}
                for one in self.locks
            ],
            "statements": [
                asdict(one)
                | {"at": _milliseconds(one.at), "took": _milliseconds(one.took), "under": list(one.under)}
                for one in self.statements
            ],
            "left_out": self.left_out,
            "unassigned": self.unassigned,
            "elsewhere": sum(bool(one.thread) for one in self.statements),
            "waited": _milliseconds(sum(one.waited for one in self.locks)),
            "outside": sum(not one.under for one in self.statements),
        }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


#: The record of the running request; None: it is not recorded.
recording: ContextVar[RequestRecord | None] = ContextVar("distlock_record", default=None)
_running: WeakSet[RequestRecord] = WeakSet()
#: Its ``cursor`` is the cursor that is executing a statement in this thread, or None.
_thread = threading.local()


def begin(record: RequestRecord) -> None:
    """Record the running request in *record*."""
    recording.set(record)
    _running.add(record)
    for connection in connections.all(initialized_only=True):
        _watch(connection)


def end(record: RequestRecord) -> None:
    """Stop recording the running request in *record*."""
    recording.set(None)
    _running.discard(record)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    if getattr(_thread, "cursor", None) is context["cursor"]:
        # In a batch the wrappers of two connections surround a statement. Record it once.
        return execute(sql, params, many, context)
    _thread.cursor = context["cursor"]
    try:
        if (record := recording.get()) is not None:
            return record.execute(execute, sql, params, many, context)
        for other in list(_running):
            other.unassigned += 1
        return execute(sql, params, many, context)
    finally:
        _thread.cursor = None


def _watch(connection: Any, **_: Any) -> None:
    wrappers = wrappers_of(connection)
    if _execute not in wrappers:
        # Insert `_execute` in front, and never remove it: Django's execute_wrapper() pops the last wrapper.
        wrappers.insert(0, _execute)


connection_created.connect(_watch, dispatch_uid="distlock.toolbar")


class LocksPanel(Panel):  # type: ignore[misc]
    """The panel with the SQL of one request, and the locks of its guards and ``with locks.lock(...)`` blocks.

    A block whose lock is a row of the database is not shown.
    """

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
        begin(self.record)
        listener_maker.set(self._watch)

    def disable_instrumentation(self) -> None:
        end(self.record)
        listener_maker.set(None)

    def generate_stats(self, request: Any, response: Any) -> None:
        self.record_stats(self.record.as_json())

    def _watch(self, namespace: Namespace) -> Listener:
        alias = next((one for one in clients.aliases() if clients[one].namespace is namespace), "")
        return _BlockListener(self.record, alias)


class _BlockListener(Listener):
    """The listener that adds the acquisitions of the ``with`` blocks of one alias to *record*."""

    def __init__(self, record: RequestRecord, alias: str) -> None:
        self._record = record
        self._alias = alias

    def asked(self, names: tuple[str, ...], where: str | CodeType | None) -> AcquisitionRecord:
        return self._record.new_record(self._alias, line_of(where), names)


def line_of(where: str | CodeType | None) -> str:
    """Return *where* as text. For code that runs in this thread, the text has the line that runs now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and isinstance(where, CodeType):
        if frame.f_code is where:
            return f"{where.co_qualname} ({Path(where.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return shown_where(where)


def _acquired(*, alias: str, where: str, grant: Grant, waited: float, **_: Any) -> None:
    if (record := recording.get()) is not None:
        record.new_record(alias, where, grant.names).acquired(grant, waited)


def _refused(*, alias: str, where: str, names: Any, error: Any, waited: float, **_: Any) -> None:
    if (record := recording.get()) is not None:
        record.new_record(alias, where, names).refused(error, waited)


def _released(*, grant: Grant, held: float, **_: Any) -> None:
    record = recording.get()
    for taken in () if record is None else record.locks:
        if taken.grant is grant:
            taken.released(held)


lock_acquired.connect(_acquired, dispatch_uid="distlock.toolbar")
lock_refused.connect(_refused, dispatch_uid="distlock.toolbar")
lock_released.connect(_released, dispatch_uid="distlock.toolbar")
