"""Sessions under a lock, in both faces: how two states of one are merged."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

#: The setting that switches it off.
REFRESH_SESSION = "DISTLOCK_REFRESH_SESSION"

_MISSING = object()


def merge(
    content: MutableMapping[str, Any],
    before: Mapping[str, Any] | None,
    fresh: Mapping[str, Any],
    *,
    ours_first: bool = False,
) -> None:
    """Bring into *content* what *fresh* has otherwise than *before*; None: all that *fresh* has.

    Lists, dicts and sets that others hold keep their identity. *ours_first*: what *content* has
    otherwise than *before* stays, too, where both have changed it.
    """
    for key in {*content, *fresh}:
        theirs, ours = fresh.get(key, _MISSING), content.get(key, _MISSING)
        if before is not None:
            known = before.get(key, _MISSING)
            if _is_same(theirs, known) or (ours_first and not _is_same(ours, known)):
                continue
        _put(content, key, theirs)


def _put(holder: MutableMapping[Any, Any], key: object, value: Any) -> None:
    """Set *key* of *holder* to *value*; a dict, list or set that is there already gets its content."""
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
