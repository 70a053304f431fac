"""What a lock is called on Redis and ZooKeeper, as their pages in docs/ list it, without distlock's code."""

from __future__ import annotations

import binascii
import re

#: What every key and channel on Redis begins with. Its number is that of the format.
FORMAT = "dl:2"
#: The node of all locks on ZooKeeper, below the path of the URL.
FOLDER = "distlock-1"


def spelled(key: str) -> str:
    """Return *key* percent-encoded: all but ASCII letters, digits, ``_``, ``.`` and ``-`` is ``%XX``."""
    encoded = "".join(
        chr(byte) if re.match(rb"[A-Za-z0-9_.-]", bytes([byte])) else f"%{byte:02X}" for byte in key.encode()
    )
    assert len(encoded) <= 200, "the pages don't say how a longer name ends"
    return encoded


def hold_key(key: str) -> str:
    """Return the key of the hold of *key*, which is prefix and name."""
    return f"{FORMAT}:{{{spelled(key)}}}"


def slot_of(key: str) -> int:
    """Return the slot of the lock *key* in Redis Cluster: the CRC16 of its hash tag."""
    return binascii.crc_hqx(spelled(key).encode(), 0) % 16384


def owner_in(state: bytes | None) -> str | None:
    """Return the token, ``readers`` or ``permits`` in the value of a hold's key; None if the lock is free.

    A hold's value is two fences, a sign and the owner. A release leaves the fences only.
    """
    words = (state or b"").decode().split(" ", 3)
    return words[3] if len(words) == 4 else None


def is_free(state: bytes | None) -> bool:
    """Return whether the value of a hold's key says that nobody has the lock."""
    return owner_in(state) is None


def command(*parts: str | bytes | int) -> bytes:
    """Encode one command: https://redis.io/docs/latest/develop/reference/protocol-spec/."""
    written = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in written)


def lock_path(base: str, key: str) -> str:
    """Return the node of the lock *key* on ZooKeeper, below *base*."""
    return f"{base}/{spelled(key)}"
