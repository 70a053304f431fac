"""Names of locks: which are allowed, and how they are stored."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from urllib.parse import quote

from distlock.errors import ConfigurationError, InvalidName

MAX_LENGTH = 255

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,64}")


def check_name(name: object) -> str:
    """Return *name* if it can be locked.

    Raises `InvalidName` for another type, an empty text, more than `MAX_LENGTH` characters, control
    characters, lone surrogates, and characters that Unicode has not assigned.
    """
    if not isinstance(name, str):
        raise InvalidName(f"A lock's name is a str, not {type(name).__name__}: write str(value).")
    if not name:
        raise InvalidName("A lock's name is empty. Say what is locked, for example 'product_1'.")
    if len(name) > MAX_LENGTH:
        raise InvalidName(f"A lock's name has {len(name)} characters; at most {MAX_LENGTH} are allowed.")
    # isascii and isprintable are fast, and most names need nothing else.
    if not (name.isascii() and name.isprintable()):
        for character in name:
            if unicodedata.category(character) in {"Cc", "Cs", "Cn"}:
                raise InvalidName(
                    f"A lock's name has the character U+{ord(character):04X}, which is not text: {name!a}."
                )
    return name


def check_prefix(prefix: object) -> str:
    """Return *prefix*, or raise `ConfigurationError`. A ':' is invalid: in a key, it ends the prefix."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            f"The prefix {prefix!r} has to be at most 64 letters, digits, '_', '.' or '-', as in 'shop'."
        )
    return prefix


def encode(key: str, max_length: int = 200) -> str:
    """Return *key* written with letters, digits and ``_.-%~`` only. Different keys stay different.

    Names may come from clients, and must not change a hash tag, a path or a pattern. If the result would be
    longer than *max_length*, a digest replaces its end.
    """
    encoded = quote(key, safe="")
    # quote() keeps '~'. Escape it, because it marks a digest: no short key may look like a long one.
    encoded = encoded.replace("~", "%7E")
    if len(encoded) <= max_length:
        return encoded
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{encoded[: max_length - 33]}~{digest}"
