"""Templates of which two different rows of values make one name: ``<slug:a>_<slug:b>``."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Iterator

from distlock.web.names.templates import Placeholder, Template, parse

_DIGITS = frozenset(string.digits)
_SLUG = _DIGITS | frozenset(string.ascii_letters + "-_")


class _Everything(frozenset[str]):
    def __contains__(self, character: object) -> bool:
        return True


#: The characters that values of a converter may have; a UUID always ends in the right place.
_INSIDE: dict[str | None, frozenset[str]] = {"int": _DIGITS, "slug": _SLUG, "str": _Everything()}


def joined(templates: Iterable[Template]) -> Iterator[str]:
    """Yield the errors of those *templates* that give two identities one lock, with the line to write."""
    for template in templates:
        if (found := _pair(template)) is None:
            continue
        first, last = found
        line = _separated(template)
        helps = _pair(parse(line)) is None
        write = f"Write {line!r}." if helps else "Write 'slug:' or 'int:', and ':' between."
        yield (
            f"{first.text} and {last.text} run together in the lock's name {template.text!r}: two different "
            f"pairs of values may make one name, and wait for each other. {write}"
        )


def _pair(template: Template) -> tuple[Placeholder, Placeholder] | None:
    """Two placeholders of which nobody can say where one ends and the other begins."""
    parts = template.parts
    for (start, first), (end, last) in itertools.combinations(enumerate(parts), 2):
        if isinstance(first, Placeholder) and isinstance(last, Placeholder):
            between = parts[start + 1 : end]
            if _holds(first, between) and _holds(last, between):
                return first, last
    return None


def _holds(placeholder: Placeholder, between: tuple[str | Placeholder, ...]) -> bool:
    """Whether a value of *placeholder* may go on over *between*."""
    inside = _INSIDE.get(placeholder.converter)
    if inside is None:
        return False
    for part in between:
        if not isinstance(part, Placeholder):
            if not all(character in inside for character in part):
                return False
        elif part.converter == "uuid" and inside is _DIGITS:
            return False
    return True


def _separated(template: Template) -> str:
    """*template* with ':' between its placeholders, which is in no int, slug or UUID."""
    written, inner = "", ""
    for part in template.parts:
        if isinstance(part, str):
            inner += part
            continue
        if written and ":" not in inner:
            word = inner.strip("-_")
            inner = f":{word}:" if word else ":"
        written += f"{inner}{part.text}"
        inner = ""
    return written + inner
