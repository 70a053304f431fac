"""Names of locks: which are allowed, how they are stored, and which configurations share their locks."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
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


#: The parts of a server's URL, without the login, because that may change while processes run.
_SERVER = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:[^/@]*@)?(?P<hosts>[^/?]*)(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
_PORTS = {"redis": 6379, "rediss": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
#: Names of this host.
_HERE = ("localhost", "[::1]")


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value by which to compare two configurations: if it is equal, they share their locks.

    If it differs, they may still share them, for example because one server has two host names. *row*: the
    setting ``FENCE`` if the locks are rows of a database; else None.
    """
    # Leave out the provider: its text differs between processes.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return _normalised(url), backend, prefix, told, row


def sort_key_of(of: object) -> str:
    """Return a text for the lock service of *of*, a client's `identity`; "" if that is unknown.

    `multi_lock` sorts lock services by this text, which is the same in all processes that write the same URL.
    """
    if not isinstance(of, tuple):
        return ""
    url, backend, _, _, row = of
    return repr((url, backend, row)) if url else ""


def _normalised(url: str) -> str:
    """Return *url* without its login, in one spelling: ``redis://127.0.0.1:6379/0``."""
    found = _SERVER.fullmatch(url)
    if found is None or (port := _PORTS.get(scheme := found["scheme"].lower())) is None:
        return url if found is None else f"{found['scheme']}://{found['hosts']}{found['rest']}"
    hosts = []
    for host in found["hosts"].lower().split(","):
        name, _, given = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "")
        hosts.append(f"{'127.0.0.1' if not name or name in _HERE else name}:{given or port}")
    rest = found["rest"]
    if scheme in {"redis", "rediss"} and rest in {"", "/"}:
        rest = "/0"
    return f"{scheme}://{','.join(hosts)}{rest}"
