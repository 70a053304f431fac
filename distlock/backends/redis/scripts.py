"""The Lua scripts, and the bytes that call them.

All scripts take the same keys and arguments (see ``hold.lua``), and some more behind these. That makes nearly
the whole call the same for every ask for one key, so it is written once: packing it anew is a fifth of an
exchange.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Set
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.names import encode

#: The key of a hold: its number and token, or what is left when it was given back. See ``hold.lua``.
_HOLD, _LEFT_OF_IT = re.compile(rb"(\d+) \d+ [+-] (.+)"), re.compile(rb"\d+ \d+")

#: What stands in the place of a token where several share a hold: see ``shared.lua``.
_SHARED: Mapping[str, Mode] = {"readers": READ, "permits": PERMIT}

_KEYS = 3
_ARGUMENTS = 8

#: Begins every key and channel. It has the number of the format: versions with another have other locks.
FORMAT = "dl:2"
#: What is left of a hold lives for the rest of its ttl. Nothing is left where that may be longer, seconds.
_LEFT = 30.0


def bulk(*parts: str | bytes | int) -> bytes:
    """*parts* as the bulk strings of https://redis.io/docs/latest/develop/reference/protocol-spec/."""
    written = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in written])


def command(*parts: str | bytes | int) -> bytes:
    """A whole command."""
    return b"*%d\r\n" % len(parts) + bulk(*parts)


class Script:
    """One script, and how its call begins: by digest, or by source for a server that forgot it.

    *numbers*: how many numbers stand behind an answer, where there are any. *entries*: the answers behind
    whose numbers a text stands.
    """

    def __init__(
        self,
        *files: str,
        arguments: int = _ARGUMENTS,
        numbers: Mapping[int, int] = MappingProxyType({}),
        entries: Set[int] = frozenset(),
    ) -> None:
        self.numbers = numbers
        self.entries = entries
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


_HANDING = ("waiters.lua", "shared.lua", "hand_off.lua")


def _request(*files: str, held: int) -> Script:
    """*held*: how many numbers stand behind the answer that it is held."""
    return Script(*files, arguments=_ARGUMENTS + 2, numbers={1: held, 2: 2}, entries={2})


#: By mode.
REQUEST: Mapping[Mode, Script] = {
    EXCLUSIVE: _request(
        "hold.lua",
        "answers.lua",
        "request.lua",
        "lifetime.lua",
        *_HANDING,
        "queue.lua",
        "behind.lua",
        held=1,
    ),
    READ: _request(
        "hold.lua",
        "answers.lua",
        *_HANDING,
        "queue.lua",
        "sharing.lua",
        "read.lua",
        "lifetime.lua",
        "behind.lua",
        held=2,
    ),
    PERMIT: _request(
        "hold.lua",
        "answers.lua",
        "waiters.lua",
        "shared.lua",
        "queue.lua",
        "sharing.lua",
        "permit.lua",
        held=3,
    ),
}
ACKNOWLEDGE = Script("hold.lua", "acknowledge.lua", arguments=_ARGUMENTS + 1)
_LEAVE = Script("hold.lua", *_HANDING, "leave.lua")
#: By mode.
RELEASE: Mapping[Mode, Script] = {
    EXCLUSIVE: Script(
        "give_back.lua", "hold.lua", *_HANDING, "release.lua", "leave.lua", arguments=_ARGUMENTS + 1
    ),
    READ: _LEAVE,
    PERMIT: _LEAVE,
}
DOWNGRADE = Script("hold.lua", "waiters.lua", "shared.lua", "downgrade.lua")
CANCEL = Script("hold.lua", *_HANDING, "cancel.lua", arguments=_ARGUMENTS + 1)
RENEW = Script("hold.lua", "waiters.lua", "shared.lua", "wanted.lua", "renew.lua")
REQUEST_RELEASE = Script("hold.lua", "waiters.lua", "shared.lua", "wanted.lua", "request_release.lua")
FOREIGN = Script("hold.lua", "foreign.lua")
BREAK = Script("hold.lua", *_HANDING, "break.lua", arguments=_ARGUMENTS + 1)
RAISE_FLOOR = Script(
    "hold.lua", "waiters.lua", "shared.lua", "raise_fence.lua", arguments=_ARGUMENTS + 1, numbers={1: 1}
)

AGREE = Script("hold.lua", "agree.lua", arguments=_ARGUMENTS + 1)


def polled(number: int = 0, entry: bytes = b"") -> bytes:
    """The last arguments of a request. Of one that queues: the poll's number, what stands in the queue."""
    poll = b"%d" % number
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(poll), poll, len(entry), entry)


def wish_of(request: LockRequest) -> int | str:
    """What *request* wants, as ``waiters.lua`` has it: numbers, to read, or permits."""
    if request.mode == EXCLUSIVE:
        return request.span
    return 0 if request.mode == READ else f"{request.permits}/{request.limit}"


def left_by(request: LockRequest) -> bytes:
    """The last argument of a release: what it leaves, if the number of the hold is known."""
    if request.mode != EXCLUSIVE:
        return b""
    if not request.number or request.ttl > _LEFT:
        return b"$0\r\n\r\n"
    left = b"%d %d" % (request.number, request.number + request.span)
    return b"$%d\r\n%b\r\n" % (len(left), left)


def holder(state: bytes | None) -> tuple[int, str] | None:
    """Number and token of the hold that *state*, the value of its key, tells of."""
    held = _HOLD.fullmatch(state or b"")
    return held and (int(held[1]), held[2].decode("utf-8", "replace"))


def mode_of(token: str) -> Mode:
    """In which mode *token*, that of a hold, says it is held: several share those that have a word for it."""
    return _SHARED.get(token, EXCLUSIVE)


def number_of(token: str) -> int:
    """What names the permits of *token*, and gives nothing of it away."""
    return int(hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()[:12], 16)


def is_free(state: bytes | None) -> bool:
    return state is None or _LEFT_OF_IT.fullmatch(state) is not None


def hold_key(key: str) -> str:
    """The key of the hold. The others of the same lock share its hash tag, so one slot has them all."""
    return f"{FORMAT}:{{{encode(key)}}}"


def key_of(command: bytes) -> bytes:
    """The first argument of *command*, which is the key of most."""
    return command.split(b"\r\n", 5)[4]


def channel_of(process: str) -> str:
    """Where *process* hears."""
    return f"{FORMAT}:ch:{process}"


@lru_cache(maxsize=8192)
def head(
    script: Script,
    key: str,
    ttl: float,
    wish: int | str,
    queue: bool,
    process: tuple[str, float, float],
    length: int,
) -> bytes:
    """A call of *script* up to its token, which is *length* bytes long.

    *wish*: see `wish_of`.
    *process*: its name, and the window of a hand-off to it and its ``fence_ttl``, seconds.
    """
    hold = hold_key(key)
    name, ack_window, fence_ttl = process
    said = bulk(
        _KEYS,
        hold,
        f"{hold}:fence",
        f"{hold}:queue",
        name,
        key,
        _milliseconds(ack_window),
        _milliseconds(fence_ttl),
        _milliseconds(ttl),
        wish,
        int(queue),
    )
    return b"%b%b$%d\r\n" % (script.by_digest, said, length)


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
