"""Merges stored changes into a session that was loaded earlier, for Django and Flask."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

#: The setting that says whether guards read sessions again under the lock; True by default.
REFRESH_SESSION = "DISTLOCK_REFRESH_SESSION"

logger = logging.getLogger("distlock")

_MISSING = object()
#: The guards with ``mode="shared"`` whose views were logged because they change the session.
_logged: set[str] = set()


def warn_of_reader(where: str) -> None:
    """Warn, once for *where*, that a view under a lock for reading has changed its session."""
    if where in _logged:
        return
    _logged.add(where)
    logger.warning(
        '%s changed the session under mode="shared". Other readers run at the same time, so one of them may '
        "overwrite the change: leave mode= out of the guard, or change the session under another lock.",
        where,
    )


def merge(
    content: MutableMapping[str, Any],
    before: Mapping[str, Any] | None,
    fresh: Mapping[str, Any],
    *,
    ours_first: bool = False,
) -> None:
    """Apply the changes from *before* to *fresh* to *content*. Without *before*, *content* becomes *fresh*.

    Lists, dicts and sets are changed in place, because other code may refer to them. *ours_first*: a key that
    *content* has changed since *before* stays as it is, even if *fresh* has changed it, too.
    """
    for key in {*content, *fresh}:
        theirs, ours = fresh.get(key, _MISSING), content.get(key, _MISSING)
        if before is not None:
            known = before.get(key, _MISSING)
            if _is_same(theirs, known) or (ours_first and not _is_same(ours, known)):
                continue
        _put(content, key, theirs)


def _put(holder: MutableMapping[Any, Any], key: object, value: Any) -> None:
    """Set *key* of *holder* to *value*, or remove it for `_MISSING`.

    A dict, list or set is changed in place if *value* has the same type.
    """
    current = holder.get(key, _MISSING)
    if value is _MISSING:
        holder.pop(key, None)
    elif _is_same(current, value):
        return
    elif type(current) is not type(value) or not isinstance(value, dict | list | set):
        holder[key] = deepcopy(value)
    elif isinstance(value, dict):
        for each in {*current, *value}:
            _put(current, each, value.get(each, _MISSING))
    elif isinstance(value, list):
        items = dict(enumerate(current))
        for index, item in enumerate(value):
            _put(items, index, item)
        current[:] = [items[index] for index in range(len(value))]
    else:
        current.clear()
        current.update(deepcopy(value))


def _is_same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and one == other)
