"""Records the locks and SQL statements of one request, in order, for the debug toolbar.

A statement belongs to the request in whose context it runs. A thread that a view starts has no such context:
its statements are counted as strangers' in all requests of that time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.signals import connection_created

from distlock.clock import now
from distlock.errors import LockError
from distlock.grants.grant import Grant
from distlock.operate.looking import Party
from distlock.terms import EXCLUSIVE, PERMIT
from django_distlock.private import wrappers_of

#: The most locks, and the most statements, that are recorded.
MOST = 500
#: The most characters of a statement that are recorded.
LONGEST = 1_000


@dataclass(slots=True, eq=False)
class Taken:
    """One lock that a request asked for, as its guard or ``with`` block reports it. The toolbar shows it."""

    alias: str
    where: str
    names: tuple[str, ...] = ()
    waited: float = 0.0
    #: Seconds; None: the lock is still held, or was never granted.
    held: float | None = None
    grant: Grant | None = None
    fences: str = ""
    #: "" for an exclusive lock.
    mode: str = ""
    #: Why the lock was not granted, or how it was lost.
    trouble: str = ""

    @property
    def is_open(self) -> bool:
        return self.grant is not None and self.held is None and not self.grant.released

    def acquired(self, grant: Grant, waited: float) -> None:
        self.grant, self.names, self.waited = grant, grant.names, waited
        self.mode = "" if grant.mode == EXCLUSIVE else grant.mode
        if grant.mode == PERMIT:
            # Permits have no fence.
            return
        # If the lock is a row, this is called after BEGIN, so the fences are known.
        self.fences = ", ".join(f"{fence.epoch}:{fence.number}" for fence in grant.fences.values())

    def contended(self, names: Sequence[str], holder: Party | None) -> None: ...

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        self.names, self.waited, self.trouble = tuple(names), waited, str(error)

    def released(self, grant: Grant, held: float) -> None:
        self.held, self.trouble = held, grant.why_lost or ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL."""

    #: Seconds from the beginning of the request to that of the statement.
    at: float
    took: float
    database: str
    sql: str
    #: The names of the locks that were held.
    under: tuple[str, ...]
    in_transaction: bool
    #: "" for the thread that began the request.
    thread: str = ""


@dataclass(eq=False)
class RequestRecord:
    """The locks and statements of one request."""

    began: float = field(default_factory=now)
    locks: list[Taken] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    #: The number of statements beyond `MOST`.
    left_out: int = 0
    #: The number of statements that threads without a known request sent meanwhile.
    strangers: int = 0
    thread: threading.Thread = field(default_factory=threading.current_thread)

    def take(self, alias: str, where: str) -> Taken:
        """Return a new record of a lock that the request asks for."""
        taken = Taken(alias, where)
        if len(self.locks) < MOST:
            self.locks.append(taken)
        return taken

    def find(self, grant: Grant) -> Taken | None:
        """Return the record of *grant*, or None."""
        return next((one for one in self.locks if one.grant is grant), None)

    def execute(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Record a statement. This is an execute wrapper of Django."""
        under = tuple(name for taken in self.locks if taken.is_open for name in taken.names)
        connection, before = context["connection"], now()
        try:
            return execute(sql, params, many, context)
        finally:
            if len(self.statements) < MOST:
                took, thread = now() - before, threading.current_thread()
                statement = Statement(
                    before - self.began,
                    took,
                    connection.alias,
                    str(sql)[:LONGEST],
                    under,
                    connection.in_atomic_block,
                    "" if thread is self.thread else thread.name,
                )
                self.statements.append(statement)
            else:
                self.left_out += 1

    def told(self) -> dict[str, Any]:
        """Return what the toolbar stores, in JSON's types only. Times are in milliseconds."""
        return {
            "locks": [
                {
                    "names": list(one.names),
                    "alias": one.alias,
                    "where": one.where,
                    "waited": _milliseconds(one.waited),
                    "held": _milliseconds(one.held),
                    "fences": one.fences,
                    "mode": one.mode,
                    "granted": one.grant is not None,
                    "trouble": one.trouble,
                }
                for one in self.locks
            ],
            "statements": [
                {
                    "at": _milliseconds(one.at),
                    "took": _milliseconds(one.took),
                    "database": one.database,
                    "sql": one.sql,
                    "under": list(one.under),
                    "in_transaction": one.in_transaction,
                    "thread": one.thread,
                }
                for one in self.statements
            ],
            "left_out": self.left_out,
            "strangers": self.strangers,
            "elsewhere": sum(bool(one.thread) for one in self.statements),
            "waited": _milliseconds(sum(one.waited for one in self.locks)),
            "outside": sum(not one.under for one in self.statements),
        }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


#: The record of the running request; None: it is not recorded.
recording: ContextVar[RequestRecord | None] = ContextVar("distlock_record", default=None)
_running: WeakSet[RequestRecord] = WeakSet()
#: ``cursor`` is the one that executes a statement in this thread, or None.
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
        # In a batch the wrappers of two connections surround the statement. Record it once.
        return execute(sql, params, many, context)
    _thread.cursor = context["cursor"]
    try:
        if (record := recording.get()) is not None:
            return record.execute(execute, sql, params, many, context)
        for other in list(_running):
            other.strangers += 1
        return execute(sql, params, many, context)
    finally:
        _thread.cursor = None


def _watch(connection: Any, **_: Any) -> None:
    wrappers = wrappers_of(connection)
    if _execute not in wrappers:
        # Insert it in front, and never remove it: Django's execute_wrapper() pops the last one at its end.
        wrappers.insert(0, _execute)


connection_created.connect(_watch, dispatch_uid="distlock.toolbar")
