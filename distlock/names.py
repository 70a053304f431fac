"""Names of locks: what may be one, and how it is written where a lock service allows less than text."""

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

    Raises `InvalidName` for what is not text: another type, nothing, more than `MAX_LENGTH` characters,
    control characters, lone surrogates, or characters that Unicode leaves unassigned.
    """
    if not isinstance(name, str):
        raise InvalidName(f"A lock's name is a str, not {type(name).__name__}: write str(value).")
    if not name:
        raise InvalidName("A lock's name is empty. Say what is locked, for example 'product_1'.")
    if len(name) > MAX_LENGTH:
        raise InvalidName(f"A lock's name has {len(name)} characters; at most {MAX_LENGTH} are allowed.")
    # isascii and isprintable are C loops: the common name costs no look at Unicode's tables.
    if not (name.isascii() and name.isprintable()):
        for character in name:
            if unicodedata.category(character) in {"Cc", "Cs", "Cn"}:
                raise InvalidName(
                    f"A lock's name has the character U+{ord(character):04X}, which is not text: {name!a}."
                )
    return name


def check_prefix(prefix: object) -> str:
    """Return *prefix* if it can stand before every name; it has no ':', so that two pairs never meet."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            f"The prefix {prefix!r} has to be at most 64 letters, digits, '_', '.' or '-', as in 'shop'."
        )
    return prefix


def encode(key: str, max_length: int = 200) -> str:
    """Write *key* with letters, digits and ``_.-%`` only, one spelling per key.

    Names come from clients. Encoded they cannot steer a hash tag, a path or a pattern. Past *max_length*
    the tail is replaced by a digest, so that different keys stay different.
    """
    encoded = quote(key, safe="")
    # quote leaves '~' alone, which frees it to mark a digest: no short key can be spelled like a long one.
    encoded = encoded.replace("~", "%7E")
    if len(encoded) <= max_length:
        return encoded
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{encoded[: max_length - 33]}~{digest}"
