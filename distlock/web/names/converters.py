"""Converters: they turn an argument into the text that stands for it in a lock's name.

They are strict, and the same in both frameworks. Two spellings of one value give one name, or are refused.
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
    """A part of a lock's name, which the client has sent, is missing or malformed."""


class Unfit(ConfigurationError):
    """The argument has a type that the placeholder never takes, so the template has to change."""


def convert_int(value: object) -> str:
    """Convert a whole number to decimal. Text has to be spelled as `str(int)` would spell it."""
    if isinstance(value, str):
        return _matching(_INT, value, "a whole number such as 42")
    return _decimal(value, "whole numbers")


def convert_slug(value: object) -> str:
    """Convert text of ASCII letters, digits, '-' and '_'."""
    if isinstance(value, str):
        return _matching(_SLUG, value, "letters, digits, '-' and '_'")
    raise Unfit(f"takes text, not {type(value).__name__}")


def convert_uuid(value: object) -> str:
    """Convert a UUID to lower case."""
    if isinstance(value, str):
        return _matching(_UUID, value, "a UUID").lower()
    if isinstance(value, UUID):
        return str(value)
    raise Unfit(f"takes UUIDs, not {type(value).__name__}")


def convert_str(value: object) -> str:
    """Convert a whole number or text, whose outer blanks are stripped, as form fields of Django and REST do.

    Use ``str:`` only if another spelling means another object.
    """
    return _text(value.strip() if isinstance(value, str) else value)


def _text(value: object) -> str:
    if isinstance(value, str):
        if not value:
            raise Malformed("is empty")
        return str(value)
    return _decimal(value, "text")


def convert_plain(value: object) -> str:
    """Convert a whole number or UUID, for ``<id>`` without a converter. Each has a single spelling."""
    if isinstance(value, UUID):
        return str(value)
    return _decimal(value, "int and UUID")


def convert_key(value: object) -> str:
    """Convert the key of ``<user.pk>``, which comes from the site's database, and so has one spelling."""
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
    # int(value), because a subclass of int, such as an enum, may print otherwise. str() refuses huge numbers.
    try:
        return str(int(value))
    except ValueError as error:
        raise Malformed("is a number with too many digits") from error
