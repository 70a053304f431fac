"""Merges stored changes into a session that was loaded earlier, for Django and Flask."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

#: The setting that says whether guards read sessions again under the lock; True by default.
REFRESH_SESSION = "DISTLOCK_REFRESH_SESSION"

_MISSING = object()


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
    there = holder.get(key, _MISSING)
    if value is _MISSING:
        holder.pop(key, None)
    elif _is_same(there, value):
        return
    elif type(there) is not type(value) or not isinstance(value, dict | list | set):
        holder[key] = deepcopy(value)
    elif isinstance(value, dict):
        for one in {*there, *value}:
            _put(there, one, value.get(one, _MISSING))
    elif isinstance(value, list):
        places = dict(enumerate(there))
        for place, one in enumerate(value):
            _put(places, place, one)
        there[:] = [places[place] for place in range(len(value))]
    else:
        there.clear()
        there.update(deepcopy(value))


def _is_same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and one == other)
