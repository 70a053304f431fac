"""The Lua scripts, and the bytes that call them.

All scripts take the same keys and arguments (see ``handover.lua``), one of them one more. That makes nearly
the whole call the same for every ask for one key, so it is written once: packing it anew is a fifth of an
exchange.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from distlock.names import encode

_KEYS = 4
_ARGUMENTS = 8


def bulk(*parts: str | bytes | int) -> bytes:
    """*parts* as the bulk strings of https://redis.io/docs/latest/develop/reference/protocol-spec/."""
    written = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in written])


def command(*parts: str | bytes | int) -> bytes:
    """A whole command."""
    return b"*%d\r\n" % len(parts) + bulk(*parts)


class Script:
    """One script, and how its call begins: by digest, or by source for a server that forgot it.

    *numbers*: how many numbers stand behind an answer, where there are any.
    """

    def __init__(
        self, *files: str, arguments: int = _ARGUMENTS, numbers: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self.numbers = numbers
        folder = resources.files(__package__)
        text = "\n".join((folder / file).read_text("utf-8") for file in files)
        self._lines = text.splitlines()
        source = text.encode()
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        begin = b"*%d\r\n" % (2 + 1 + _KEYS + arguments)
        self.by_digest = begin + bulk("EVALSHA", digest)
        self.by_source = begin + bulk("EVAL", source)

    def command_at(self, error: str) -> str | None:
        """Which command the server's *error* is about: it tells the line, and seldom the command."""
        line = re.search(r"user_script: ?(\d+)", error)
        if line is None or not 0 < int(line[1]) <= len(self._lines):
            return None
        called = re.search(r"redis\.call\('(\w+)'", self._lines[int(line[1]) - 1])
        return called and called[1]


REQUEST = Script("handover.lua", "request.lua", numbers={1: 1, 2: 2})
RELEASE = Script("handover.lua", "release.lua")
CANCEL = Script("handover.lua", "cancel.lua")
RENEW = Script("handover.lua", "renew.lua")
FOREIGN = Script("handover.lua", "foreign.lua")
BREAK = Script("handover.lua", "break.lua", arguments=_ARGUMENTS + 1)
RAISE_FLOOR = Script("handover.lua", "raise_floor.lua", arguments=_ARGUMENTS + 1, numbers={1: 1})


def hold_key(key: str) -> str:
    """The key of the hold. The others of the same lock share its hash tag, so one slot has them all."""
    return f"dl:1:{{{encode(key)}}}"


@lru_cache(maxsize=4096)
def terms(
    key: str, ttl: float, span: int, queue: bool, process: str, ack_window: float, fence_ttl: float
) -> bytes:
    """The keys, and all arguments but the token."""
    hold = hold_key(key)
    return bulk(
        _KEYS,
        hold,
        f"{hold}:fence",
        f"{hold}:queue",
        f"{hold}:waiters",
        process,
        key,
        _milliseconds(ack_window),
        _milliseconds(fence_ttl),
        _milliseconds(ttl),
        span,
        int(queue),
    )


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
