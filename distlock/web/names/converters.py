"""Converters: from an argument to the one spelling that stands in a lock's name.

They are ours and strict, the same in both frameworks: two spellings of one value are one lock or are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from distlock.errors import ConfigurationError, InvalidName

Converter = Callable[[object], str]

_INT = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_SLUG = re.compile(r"[-a-zA-Z0-9_]+", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class Malformed(InvalidName):
    """A part of a lock's name is missing or malformed. The client sent it, so it is the client's to mend."""


class Unfit(ConfigurationError):
    """The argument is of a type that the placeholder can never take: the template has to change."""


def convert_int(value: object) -> str:
    """A whole number in decimal; of text, only the spelling that `str(int)` would give."""
    if isinstance(value, str):
        return _matching(_INT, value, "a whole number such as 42")
    return _decimal(value, "whole numbers")


def convert_slug(value: object) -> str:
    """ASCII letters, digits, '-' and '_'."""
    if isinstance(value, str):
        return _matching(_SLUG, value, "letters, digits, '-' and '_'")
    raise Unfit(f"takes text, not {type(value).__name__}")


def convert_uuid(value: object) -> str:
    """Return a UUID in lower case, whichever case it came in."""
    if isinstance(value, str):
        return _matching(_UUID, value, "a UUID").lower()
    if isinstance(value, UUID):
        return str(value)
    raise Unfit(f"takes UUIDs, not {type(value).__name__}")


def convert_str(value: object) -> str:
    """Return text without the blanks around it: Django's form fields and REST framework's strip them, too.

    Use ``str:`` only where another spelling means another object.
    """
    return _text(value.strip() if isinstance(value, str) else value)


def _text(value: object) -> str:
    if isinstance(value, str):
        if not value:
            raise Malformed("is empty")
        return str(value)
    return _decimal(value, "text")


def convert_plain(value: object) -> str:
    """Convert the value of a bare ``<id>``, which has to be one with a single spelling."""
    if isinstance(value, UUID):
        return str(value)
    return _decimal(value, "int and UUID")


def convert_key(value: object) -> str:
    """Convert the key of ``<user.pk>``, which the site's own database spells in one way."""
    return str(value) if isinstance(value, UUID) else _text(value)


CONVERTERS: dict[str, Converter] = {
    "int": convert_int,
    "slug": convert_slug,
    "str": convert_str,
    "uuid": convert_uuid,
}


def _matching(pattern: re.Pattern[str], text: str, wanted: str) -> str:
    if not pattern.fullmatch(text):
        raise Malformed(f"is empty: it has to be {wanted}" if not text else f"is not {wanted}")
    return str(text)


def _decimal(value: object, wanted: str) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit(f"takes {wanted}, not {type(value).__name__}")
    # int(value): an IntEnum or numpy's int may print otherwise. Python refuses to write out huge numbers.
    try:
        return str(int(value))
    except ValueError as error:
        raise Malformed("is a number with too many digits") from error
