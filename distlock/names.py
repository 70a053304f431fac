"""Names of locks: what may be one, how it is stored, and which configurations mean the same locks by it."""

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


#: A URL of a server: scheme, login, hosts and the rest. The login may change while processes run.
_SERVER = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:[^/@]*@)?(?P<hosts>[^/?]*)(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
#: The ports that a URL need not name.
_PORTS = {"redis": 6379, "rediss": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
#: Names of this host.
_HERE = ("localhost", "[::1]")


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value that two configurations have in common if and only if they share locks."""
    # An object has another text in each process.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return _spelled(url), backend, prefix, told, row


def lock_service(of: object) -> str:
    """Return a text for the lock service in the `identity` *of* a client; "" if that is unknown.

    It is the same in every process that spells the host alike, and sorts lock services.
    """
    if not isinstance(of, tuple):
        return ""
    url, backend, _, _, row = of
    return repr((url, backend, row)) if url else ""


def _spelled(url: str) -> str:
    """Return *url* without a login, and as most people write it: ``redis://127.0.0.1:6379/0``."""
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
