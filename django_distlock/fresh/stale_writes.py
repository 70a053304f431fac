"""Detects stale writes: rows that were loaded before the outermost lock and are saved under it.

By default the detector is on in debug mode and in races. Each loaded instance keeps stamps: for each field
the time, the line of the site's code, and the value. A save under a lock checks the stamps of the fields that
it writes. Django's signals and an execute wrapper report loads and saves, so no code of Django is patched.
They are connected only while the detector is on.

`values()`, raw SQL, and a count that decides on an INSERT leave no stamps, so they are not detected.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist
from django.core.signals import request_finished, request_started
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models import DateField, Field, Model, TimeField
from django.db.models.signals import post_init, post_save, pre_save
from django.dispatch import Signal

from distlock.clock import now
from distlock.web import stale_writes as shared
from django_distlock import private, private_of_others

_UID = "django_distlock.stale_writes"

#: The attribute of an instance's ``_state`` with its stamps.
_STAMPS = "distlock_stamps"


class _Stamps:
    """When, where and with which values the fields of one instance were read, by their ``attname``."""

    __slots__ = ("reads", "values")

    def __init__(self) -> None:
        self.reads: dict[str, shared.Read] = {}
        self.values: dict[str, Any] = {}

    def note(self, read: shared.Read, values: dict[str, Any]) -> None:
        self.reads |= dict.fromkeys(values, read)
        self.values |= values


#: The most rows that are remembered of one request, and the most entries of `_last_saves`.
_MOST = 1000
#: The rows that the running request has loaded: stamps of each instance, by model and key.
_rows_of_request: ContextVar[dict[tuple[type[Model], str], list[_Stamps]] | None] = ContextVar(
    "distlock_rows_of_request", default=None
)


def mode() -> shared.Mode:
    """Return how stale writes are reported. Raises `ConfigurationError` for an unknown setting."""
    return shared.mode_of(getattr(settings, shared.SETTING, None), settings.DEBUG)


def _this_read() -> shared.Read:
    return shared.this_read(private_of_others.awaiting_frames)


def _tell(write: shared.Write) -> None:
    shared.report(write, raises=mode() == "raise")


def note_read(instance: Model, fields: Iterable[str] | None = None) -> None:
    """Count *fields* of *instance* as read just now: the caller has compared them with their row.

    Args:
        instance: A loaded instance, or a lazy object around one.
        fields: Names of fields; None: all that are loaded.
    """
    stamps = getattr(instance._state, _STAMPS, None)
    if stamps is None or not _is_on:
        return
    deferred = instance.get_deferred_fields()
    names = _columns(instance, fields) - deferred
    stamps.note(_this_read(), {name: getattr(instance, name) for name in names})


def _columns(instance: Model, fields: Iterable[str] | None) -> set[str]:
    """Return the ``attname`` of each of *fields* that is a column of *instance*; None: of all its columns."""
    if fields is None:
        return {field.attname for field in private.concrete_fields(instance)}
    found = set()
    for name in fields:
        try:
            field = instance._meta.get_field(name)
        except FieldDoesNotExist:
            continue
        if field.concrete:
            found.add(field.attname)
    return found


# -- reading ----------------------------------------------------------------------------------------------


def _loaded(instance: Model, **kwargs: object) -> None:
    """Stamp *instance* if it is loaded, not made by the site, and also the instance that it refreshes."""
    is_loaded, refreshed = private.how_made()
    if not is_loaded:
        return
    read = _this_read()
    values = vars(instance).copy()
    state = values.pop("_state")
    if refreshed is not None and (stamps := getattr(refreshed._state, _STAMPS, None)) is not None:
        stamps.note(read, values)
    stamps = _Stamps()
    stamps.note(read, values)
    setattr(state, _STAMPS, stamps)
    rows = _rows_of_request.get()
    if rows is None and private_of_others.has_asgi_thread():
        # Under ASGI `_request_begins` runs in another context, so it can't set the variable for the request.
        _rows_of_request.set(rows := {})
    if rows is not None:
        rows.setdefault((type(instance), str(instance.pk)), []).append(stamps)
        while len(rows) > _MOST:
            del rows[next(iter(rows))]


def _request_begins(**kwargs: object) -> None:
    _rows_of_request.set({})


def _request_ends(**kwargs: object) -> None:
    _rows_of_request.set(None)


# -- saving -----------------------------------------------------------------------------------------------


class _Saves(threading.local):
    """The saves under a lock that the running thread has begun, each with the stale write to report."""

    def __init__(self) -> None:
        self.open: list[tuple[Model, shared.Write | None]] = []

    def begin(self, instance: Model, write: shared.Write | None) -> None:
        # Drop earlier saves of the same instance, which an error has ended.
        self.open = [one for one in self.open if one[0] is not instance][-_MOST_OPEN:]
        self.open.append((instance, write))

    def take_out(self, instance: Model) -> shared.Write | None:
        """Remove the save of *instance*, which has ended. Return the stale write that is still to report."""
        writes = [write for one, write in self.open if one is instance]
        self.open = [one for one in self.open if one[0] is not instance]
        return writes[0] if writes else None


#: The most open saves that are remembered. Saves nest if a receiver of their signals saves, too.
_MOST_OPEN = 20


_saves = _Saves()


def _saving(
    instance: Model, raw: bool = False, update_fields: Collection[str] | None = None, **kwargs: object
) -> None:
    """Note the save of *instance* that is about to begin under a lock, and whether it is a stale write."""
    stamps: _Stamps | None = getattr(instance._state, _STAMPS, None)
    if stamps is not None and (raw or instance._state.adding):
        delattr(instance._state, _STAMPS)
        stamps = None
    lock = shared.outermost_lock()
    if lock is None:
        return
    write = None
    if stamps is not None and (stale := _stale_fields(instance, stamps, lock, update_fields)):
        is_own = _is_of_one_user(instance, vars(instance), lock)
        read = (_rows_of_request.get() or {}).get((type(instance), str(instance.pk)), [])
        if update_fields is not None and _was_read_under(lock, read, stale):
            # Another instance has read the fields under the lock: assume that the values come from there.
            pass
        elif not is_own or _was_overtaken(instance, stamps, lock, stale):
            write = _write(instance, instance.pk, stamps, lock, stale)
    _saves.begin(instance, write)


def _stale_fields(
    instance: Model, stamps: _Stamps, lock: shared.OutermostLock, update_fields: Collection[str] | None
) -> list[Field[Any, Any]]:
    """Return the fields that a save writes and that were read before *lock*.

    If *instance* has changed some of them, return only the changed ones.
    """
    written = [
        field
        for field in private.value_fields(instance)
        if not field.generated
        and (update_fields is None or field.name in update_fields or field.attname in update_fields)
        and field.attname in stamps.reads
        and stamps.reads[field.attname].at < lock.since
    ]
    values = {field: vars(instance).get(field.attname) for field in written}
    computed = [field for field in written if hasattr(values[field], "resolve_expression")]
    changed = [
        field
        for field in written
        if field not in computed and not _is_same(values[field], stamps.values[field.attname])
    ]
    if computed and not changed:
        # The database computes the values from the row, as with F().
        return []
    if update_fields is not None:
        # A date or time, such as that of a login, does not depend on the old value.
        written = [field for field in written if not isinstance(field, DateField | TimeField)]
        changed = [field for field in changed if field in written]
    return changed or [field for field in written if field not in computed]


def _is_same(one: object, other: object) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:
        # Values of a class of the site may not be comparable.
        return False


#: The latest save of a row that belongs to one user, by model and key: when its lock began, and its time.
_last_saves: dict[tuple[str, Any], tuple[float, float]] = {}


def _is_of_one_user(
    model: Model | type[Model], values: Mapping[str, Any], lock: shared.OutermostLock
) -> bool:
    """Return whether the row belongs to one user, as a cart does, and *lock* names neither user nor row.

    Other users' requests don't write such a row. Only two requests of the user at once, as by a double click,
    can overwrite each other's values.
    """
    if not apps.is_installed("django.contrib.auth"):
        return False
    text, parts = "_".join(lock.names).lower(), set(re.findall(r"[^\W_]+", " ".join(lock.names)))
    user = get_user_model()
    for field in private.concrete_fields(model):
        owner = values.get(field.attname)
        if field.is_relation and owner is not None and field.related_model is user:
            kinds = {field.name.lower(), str(user._meta.model_name), "user"}
            is_users = str(owner) in parts and any(kind in text for kind in kinds)
            return not is_users and str(model._meta.model_name) not in text
    return False


def _was_overtaken(
    instance: Model, stamps: _Stamps, lock: shared.OutermostLock, fields: list[Field[Any, Any]]
) -> bool:
    """Note this save. Return whether another holder in this process has saved the row since it was loaded."""
    key = instance._meta.label, instance.pk
    with _mutex:
        since, saved_at = _last_saves.pop(key, (lock.since, 0.0))
        _last_saves[key] = lock.since, now()
        while len(_last_saves) > _MOST:
            del _last_saves[next(iter(_last_saves))]
    return since != lock.since and any(stamps.reads[field.attname].at < saved_at for field in fields)


def _write(
    model: Model | type[Model],
    key: object,
    stamps: _Stamps,
    lock: shared.OutermostLock,
    fields: list[Field[Any, Any]],
) -> shared.Write:
    name = model._meta.object_name
    first = stamps.reads[fields[0].attname]
    return shared.Write(
        row=f"{name} {key}",
        fields=[field.name for field in fields],
        lock=lock,
        loaded=first.place,
        saved=_this_read().place,
        remedy=(
            f"Load it under the lock: take the lock before the line that loads it, or write "
            f"'{str(name).lower()}.refresh_from_db()' as the first line under the lock."
        ),
    )


def _watch(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Report a stale write before its UPDATE is sent. This is an execute wrapper of Django."""
    if isinstance(sql, str) and sql.startswith("UPDATE "):
        is_of_save, write = _of_save(sql, context["connection"])
        if write is not None:
            _tell(write)
        if not (is_of_save or many):
            for one in list(_of_query(sql, params, context["connection"])):
                _tell(one)
    return execute(sql, params, many, context)


def _of_save(sql: str, connection: Any) -> tuple[bool, shared.Write | None]:
    """Return whether *sql* is the UPDATE of a save, and the stale write to report for it, or None."""
    for number, (instance, write) in enumerate(_saves.open):
        tables = {field.model._meta.db_table for field in private.concrete_fields(instance)}
        if sql.startswith(tuple(f"UPDATE {connection.ops.quote_name(table)} " for table in tables)):
            # Report it once, even if the save writes to several tables.
            _saves.open[number] = instance, None
            where = sql.rpartition(" WHERE ")[2]
            return True, None if _columns_in(where, instance, connection) else write
    return False, None


def _columns_in(sql: str, model: Model | type[Model], connection: Any) -> list[Field[Any, Any]]:
    """Return the fields of *model* that *sql* names, except its key."""
    quote = connection.ops.quote_name
    return [field for field in private.value_fields(model) if quote(field.column) in sql]


def _saved(
    instance: Model, created: bool, update_fields: Collection[str] | None = None, **kwargs: object
) -> None:
    """Count the fields that *instance* has just written as read now, because they equal the row's."""
    if (write := _saves.take_out(instance)) is not None:
        # `_watch` has not reported it: the connection was opened while the detector was off.
        _tell(write)
    if not created:
        note_read(instance, update_fields)


# -- updating ---------------------------------------------------------------------------------------------


def _of_query(sql: str, params: Any, connection: Any) -> Iterator[shared.Write]:
    """Yield the stale writes of *sql*, an UPDATE of a query such as ``filter(pk=1).update(stock=4)``."""
    rows = _rows_of_request.get()
    lock = shared.outermost_lock() if rows else None
    if not rows or lock is None or not isinstance(params, list | tuple):
        return
    head, _, rest = sql.partition(" SET ")
    assignments, _, where = rest.partition(" WHERE ")
    keys = set(map(str, params[assignments.count("%s") :]))
    quote = connection.ops.quote_name
    for (model, key), read in rows.items():
        table = quote(model._meta.db_table)
        if key not in keys or head != f"UPDATE {table}":
            continue
        if _columns_in(where, model, connection):
            # The WHERE clause compares the old value, so the query overwrites nothing newer.
            continue
        fields = [
            field
            for field in _columns_in(assignments, model, connection)
            if not isinstance(field, DateField | TimeField)
        ]
        if any(f"{table}.{quote(field.column)}" in assignments for field in fields):
            # The database computes the value from the row.
            continue
        old = [one for one in fields if not _was_read_under(lock, read, [one])]
        stamps = next((one for one in read if any(field.attname in one.reads for field in old)), None)
        if stamps is None or _is_of_one_user(model, stamps.values, lock):
            continue
        old = [field for field in old if field.attname in stamps.reads]
        yield _write(model, key, stamps, lock, old)
        stamps.note(_this_read(), {one.attname: None for one in old})


def _was_read_under(
    lock: shared.OutermostLock, read: Iterable[_Stamps], fields: Iterable[Field[Any, Any]]
) -> bool:
    """Return whether each of *fields* was read under *lock*, by any instance with stamps in *read*."""
    return all(
        any(field.attname in one.reads and one.reads[field.attname].at >= lock.since for one in read)
        for field in fields
    )


# -- on and off -------------------------------------------------------------------------------------------

_RECEIVERS: dict[Signal, Callable[..., None]] = {
    request_started: _request_begins,
    request_finished: _request_ends,
    post_init: _loaded,
    pre_save: _saving,
    post_save: _saved,
}
_is_on = False
_mutex = threading.RLock()


def follow_settings() -> None:
    """Turn the detector on or off, as the settings and the running races require."""
    global _is_on
    with _mutex:
        wanted = mode() != "off"
        if wanted == _is_on:
            return
        _is_on = wanted
        if wanted:
            for signal, receiver in _RECEIVERS.items():
                signal.connect(receiver, dispatch_uid=_UID)
            connection_created.connect(_connected, dispatch_uid=_UID)
            for connection in connections.all(initialized_only=True):
                _connected(connection)
        else:
            for signal in (*_RECEIVERS, connection_created):
                signal.disconnect(dispatch_uid=_UID)
            for connection in connections.all(initialized_only=True):
                while _watch in private.wrappers_of(connection):
                    private.wrappers_of(connection).remove(_watch)


def _connected(connection: Any, **kwargs: object) -> None:
    wrappers = private.wrappers_of(connection)
    if _watch not in wrappers:
        wrappers.append(_watch)


shared.add_detector(follow_settings)
