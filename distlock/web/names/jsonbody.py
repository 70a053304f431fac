"""JSON read strictly: what two parsers could understand differently is `Malformed`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NoReturn

from distlock.web.names.converters import Malformed
from distlock.web.names.places import EACH

#: Stands for the value of a key that was given twice: parsers differ on which one counts.
_TWICE = object()


def parse_json(body: bytes) -> object:
    """The document. Raises `Malformed` for what is no JSON in UTF-8, and for what is nested too deeply."""
    try:
        # Decoded here: json.loads would guess UTF-16 and UTF-32, which other parsers do not read.
        return json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise Malformed("is missing: the body is no JSON in UTF-8") from None


def walk(node: object, path: Sequence[str]) -> Iterator[object]:
    """What stands in *node* at *path*: one value for each element of the lists on the way."""
    for number, step in enumerate(path):
        if step == EACH:
            if not isinstance(node, list):
                raise Malformed("is not there: '[]' stands where the body has no list")
            if not node:
                raise Malformed("is missing: the list is empty")
            for element in node:
                yield from walk(element, path[number + 1 :])
            return
        if isinstance(node, list):
            raise Malformed("is missing: the body has a list where the name has no '[]'")
        if not isinstance(node, dict) or step not in node:
            raise Malformed("is missing")
        node = node[step]
        if node is _TWICE:
            raise Malformed("is given twice")
    if node is None:
        raise Malformed("is missing")
    yield node


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                made[key] = _TWICE
            seen.add(key)
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(name)
