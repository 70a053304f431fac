"""Detects stale writes: rows that SQLAlchemy loaded before the outermost lock and writes under it.

See `distlock.web.stale_writes`. Events of the mapper stamp each attribute that is loaded with the time and
place, and a flush checks the stamps of the attributes that it writes. If a guard or a block has expired a
session's rows, SQLAlchemy loads them again at the next access, and they get new stamps.

Rows that are read without a model instance, and `update()` statements, have no stamps, so that their stale
writes are not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, Date, DateTime, Time, event, inspect
from sqlalchemy.orm import InstanceState, Mapper
from sqlalchemy.sql import ClauseElement

from distlock.web.stale_writes import Mode, OutermostLock, Read, Write, outermost_lock, report, this_read

#: The key in the ``info`` of an instance's state for its stamps, which are by attribute name.
_STAMPS = "distlock_stamps"

#: Returns how stale writes of the running code are reported. `switch` sets it.
_mode: Callable[[], Mode]


def _loaded(target: object, context: object) -> None:
    state: InstanceState[Any] = inspect(target)
    _stamp(state, state.mapper.column_attrs.keys())


def _refreshed(target: object, context: object, attributes: Iterable[str] | None) -> None:
    state: InstanceState[Any] = inspect(target)
    _stamp(state, state.mapper.column_attrs.keys() if attributes is None else attributes)


def _stamp(state: InstanceState[Any], names: Iterable[str]) -> None:
    stamps: dict[str, Read] | None = state.info.setdefault(_STAMPS, {})
    if stamps is not None:
        stamps |= dict.fromkeys((name for name in names if name in state.dict), this_read())


def _made(mapper: Mapper[Any], connection: Connection, target: object) -> None:
    # This request has inserted the row. None keeps the row without stamps even if it is read again.
    inspect(target).info[_STAMPS] = None


def _updating(mapper: Mapper[Any], connection: Connection, target: object) -> None:
    state: InstanceState[Any] = inspect(target)
    stamps: dict[str, Read] | None = state.info.get(_STAMPS)
    if not stamps or mapper.version_id_col is not None:
        # The UPDATE of a model with a version column fails by itself if the row has changed.
        return
    lock = outermost_lock()
    mode = _mode()
    if lock is None or mode == "off":
        return
    stale = [name for name in _written(state) if name in stamps and stamps[name].at < lock.since]
    if not stale:
        return
    write = _write(state, stamps[stale[0]], lock, stale)
    stamps |= dict.fromkeys(stale, Read(lock.since, write.saved))
    report(write, raises=mode == "raise")


def _written(state: InstanceState[Any]) -> list[str]:
    """Return the attributes of *state* that an UPDATE sets to values computed by the site."""
    found = []
    for attribute in state.mapper.column_attrs:
        added = state.attrs[attribute.key].history.added
        if not added or isinstance(added[0], ClauseElement) or hasattr(added[0], "__clause_element__"):
            # The attribute is unchanged, or an expression that the database computes from the row.
            continue
        # A date or time, such as that of a login, does not depend on the old value.
        if not isinstance(attribute.columns[0].type, Date | DateTime | Time):
            found.append(attribute.key)
    return found


def _write(state: InstanceState[Any], read: Read, lock: OutermostLock, names: list[str]) -> Write:
    model = state.mapper.class_.__name__
    identity = ", ".join(map(str, state.identity or ()))
    return Write(
        row=f"{model} {identity}",
        fields=names,
        lock=lock,
        loaded=read.place,
        saved=this_read().place,
        remedy=(
            "Load it under the lock: take the lock before the line that loads it, or write "
            f"'db.session.refresh({model.lower()})' as the first line under the lock."
        ),
    )


_LISTENERS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("load", _loaded),
    ("refresh", _refreshed),
    ("after_insert", _made),
    ("before_update", _updating),
)
_is_on = False


def switch(on: bool, mode: Callable[[], Mode]) -> None:
    """Turn the detector on or off. *mode*: returns how stale writes of the running code are reported."""
    global _is_on, _mode
    _mode = mode
    if on == _is_on:
        return
    _is_on = on
    for name, listener in _LISTENERS:
        if on:
            event.listen(Mapper, name, listener)
        else:
            event.remove(Mapper, name, listener)
