"""Updates model instances that were loaded before a lock with what their rows have by now.

An instance of a watched model keeps a copy of the values that it was loaded with, or last saved. Under the
lock three values of each field are compared: the copy, the instance's own, and the row's. They show whether
another request has written the field, or this request has set it without saving it.
"""

from __future__ import annotations

import copy
import datetime
import functools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any

from django.db.models import DateField, Field, FileField, Model, TimeField
from django.db.models.fields.files import FieldFile

from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from django_distlock import private
from django_distlock.fresh.stale_writes import note_read

#: The attribute of an instance's ``_state`` with the copy of its values.
_LOADED = "distlock_loaded"

#: The attribute of ``_state`` with values set before the lock, of fields that another request wrote.
_CONFLICTS = "distlock_conflicts"

_WATCHED = "_distlock_watched"

_MISSING = object()

#: Values of these types need no copy.
_IMMUTABLE = frozenset(
    {
        type(None),
        bool,
        bytes,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        Decimal,
        float,
        int,
        str,
        uuid.UUID,
    }
)

_mutex = threading.Lock()


def watch(model: type[Model]) -> None:
    """Let instances of *model* and of its subclasses keep a copy of the values that they are loaded with."""
    with _mutex:
        if not hasattr(model, _WATCHED):
            setattr(model, _WATCHED, True)
            _wrap(model)


def _wrap(model: Any) -> None:
    from_db, refresh = model.from_db.__func__, model.refresh_from_db

    @functools.wraps(from_db)
    def from_db_and_copy(cls: type[Model], *args: Any, **kwargs: Any) -> Model:
        instance: Model = from_db(cls, *args, **kwargs)
        _copy_all(instance)
        return instance

    @functools.wraps(refresh)
    def refresh_and_copy(self: Model, *args: Any, **kwargs: Any) -> None:
        refresh(self, *args, **kwargs)
        _copy_values(self, args[1] if len(args) > 1 else kwargs.get("fields"))

    model.from_db = classmethod(from_db_and_copy)
    model.refresh_from_db = refresh_and_copy
    private.save_through(model, _saving)


def _saving(save: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save)
    def save_and_copy(self: Model, *args: Any, **kwargs: Any) -> None:
        _refuse_overwriting(self, kwargs.get("update_fields"))
        save(self, *args, **kwargs)
        _copy_values(self, kwargs.get("update_fields"))

    return save_and_copy


def update(instance: Model, row: Model) -> Callable[[], None] | None:
    """Return a function that sets the fields of *instance* that another request wrote; None: it wrote none.

    All other fields count as read just now.

    A field that this request has set and not saved keeps its value. If another request has written it, too,
    saving it under the lock raises `ConfigurationError`.

    Args:
        instance: An instance that was loaded before the lock.
        row: The instance of the same row that was read under the lock.
    """
    mine, theirs = vars(instance), vars(row)
    loaded: dict[str, Any] = getattr(instance._state, _LOADED, {})
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    written: list[Field[Any, Any]] = []
    for field in private.concrete_fields(instance):
        name = field.attname
        if name not in mine or name not in theirs:
            continue
        if _is_same(field, mine[name], theirs[name]):
            conflicts.pop(name, None)
            continue
        before = loaded.get(name, _MISSING)
        if hasattr(mine[name], "resolve_expression") and before is not mine[name]:
            # The value is an expression: the database computes it from the row, at the save.
            continue
        if before is _MISSING or _is_same(field, before, mine[name]):
            written.append(field)
        elif not (_is_same(field, before, theirs[name]) or isinstance(field, DateField | TimeField)):
            # A date or time, such as that of the last visit, does not depend on the old value.
            conflicts[name] = _copied(field, mine[name])
    if conflicts:
        setattr(instance._state, _CONFLICTS, conflicts)
    watch(type(instance))
    if not hasattr(row._state, _LOADED):
        _copy_all(row)
    setattr(instance._state, _LOADED, loaded | getattr(row._state, _LOADED))
    stale = {*conflicts, *(field.attname for field in written)}
    note_read(instance, [name for name in getattr(row._state, _LOADED) if name in mine and name not in stale])
    return functools.partial(_set, instance, row, written) if written else None


def _set(instance: Model, row: Model, fields: Iterable[Field[Any, Any]]) -> None:
    for field in fields:
        mine, theirs = vars(instance)[field.attname], vars(row)[field.attname]
        if isinstance(field, FileField):
            # setattr() would open an image to compute the columns of its size, which the row has already.
            vars(instance)[field.attname] = theirs.name if isinstance(theirs, FieldFile) else theirs
        elif not _set_content(mine, theirs):
            setattr(instance, field.attname, getattr(row, field.attname))
    note_read(instance, [field.attname for field in fields])


def _set_content(mine: Any, theirs: Any) -> bool:
    """Copy the content of *theirs* into the list or dict *mine*. Return False if they are of other types.

    Nested lists and dicts also stay the same objects, if they are in the same place in both.
    """
    if type(mine) is not type(theirs) or not isinstance(mine, dict | list):
        return False
    if isinstance(mine, dict):
        items = {key: _merged(mine.get(key), value) for key, value in theirs.items()}
        mine.clear()
        mine.update(items)
    else:
        before = [*mine, *[None] * len(theirs)]
        mine[:] = [_merged(one, value) for one, value in zip(before, theirs, strict=False)]
    return True


def _merged(mine: Any, theirs: Any) -> Any:
    return mine if _set_content(mine, theirs) else theirs


def _copy_all(instance: Model) -> None:
    values = vars(instance).copy()
    state = values.pop("_state")
    if not _IMMUTABLE.issuperset(map(type, values.values())):
        fields = private.concrete_fields(instance)
        copies = {one.attname: _copied(one, values[one.attname]) for one in fields if one.attname in values}
        values = {name: value for name, value in copies.items() if value is not _MISSING}
    setattr(state, _LOADED, values)


def _copy_values(instance: Model, names: Collection[str] | None) -> None:
    """Copy the values of the fields *names* of *instance*; None: of all fields."""
    values = vars(instance)
    loaded: dict[str, Any] = getattr(instance._state, _LOADED, {})
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    for field in private.concrete_fields(instance):
        name = field.attname
        if name in values and (names is None or name in names or field.name in names):
            conflicts.pop(name, None)
            loaded[name] = _copied(field, values[name])
            if loaded[name] is _MISSING:
                del loaded[name]
    setattr(instance._state, _LOADED, loaded)


def _copied(field: Field[Any, Any], value: Any) -> Any:
    """Return a copy of *value*, or `_MISSING` if a copy can't be made or compared."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, FieldFile):
        return value.name
    if isinstance(value, memoryview):
        return bytes(value)
    if hasattr(value, "resolve_expression"):
        return value
    try:
        copied = copy.deepcopy(value)
    except Exception:
        return _MISSING
    return copied if _is_same(field, copied, value) else _MISSING


def _is_same(field: Field[Any, Any], one: Any, other: Any) -> bool:
    """Return whether the database stores *one* and *other* as the same value."""
    try:
        return one is other or bool(one == other) or field.get_prep_value(one) == field.get_prep_value(other)
    except Exception:
        # A field class of the site may raise for a value that was never validated.
        return False


def _refuse_overwriting(instance: Model, names: Collection[str] | None) -> None:
    """Raise `ConfigurationError` if saving the fields *names* overwrites what another request wrote."""
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    if not conflicts or not current_grants():
        return
    for field in private.concrete_fields(instance):
        name = field.attname
        if name not in conflicts or not (names is None or name in names or field.name in names):
            continue
        if _is_same(field, conflicts[name], vars(instance).get(name)):
            model = type(instance).__name__
            raise ConfigurationError(
                f"{model}.{field.name} was set before the lock and not saved, and another request has "
                "written that field while this one waited: to save it now would overwrite that. Set it "
                f"under the lock, or save it where it is set: save(update_fields=[{field.name!r}])."
            )
