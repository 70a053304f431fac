"""The Lua scripts, the bytes that call them, and the check of their replies.

All scripts take the same keys and the same first arguments (see ``hold.lua``). So most bytes of a call are
the same for all requests for a key, and `encode` caches them: encoding them takes a fifth of the time of an
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

from distlock import names
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode

#: The value of a hold's key: a hold with its number and token, or a remnant, the fence numbers that a release
#: leaves. See ``hold.lua``.
_HOLD, _REMNANT = re.compile(rb"(\d+) \d+ [+-] (.+)"), re.compile(rb"\d+ \d+")

#: The words that stand instead of a token in a hold that several processes share: see ``shared_hold.lua``.
_SHARED: Mapping[str, Mode] = {"readers": READ, "permits": PERMIT}

_KEYS = 3
_ARGUMENTS = 8

#: The prefix of every key and channel, with the number of the format. Locks of different formats don't
#: exclude each other.
FORMAT = "dl:2"
#: A release that sends its numbers leaves them as the remnant for the rest of the ttl. If the ttl is longer
#: than this, in seconds, the process does not send them, and ``release_any.lua`` writes a shorter remnant.
_LONGEST_REMNANT = 30.0
#: The kinds of reply to a request: see ``answers.lua``.
HELD, BUSY, UNENDING, FOREIGN = 1, 3, 4, 5


def bulk(*parts: str | bytes | int) -> bytes:
    """Encode *parts* as bulk strings: https://redis.io/docs/latest/develop/reference/protocol-spec/."""
    written = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in written])


def command(*parts: str | bytes | int) -> bytes:
    """Encode a whole command."""
    return b"*%d\r\n" % len(parts) + bulk(*parts)


class Script:
    """One Lua script, made of *files*: the beginnings of its calls, and the form of its replies.

    A reply is a list: the token of the request, a number that is the answer, and the details of the answer.
    *numbers* says how many numbers follow each answer. *entries* are the answers after which a text follows,
    too. `by_digest` begins the usual call, and `by_source` a call to a server that does not know the script.
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
        folder = resources.files(__package__) / "lua"
        text = "\n".join((folder / file).read_text("utf-8") for file in files)
        self._lines = text.splitlines()
        source = text.encode()
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        begin = b"*%d\r\n" % (2 + 1 + _KEYS + arguments)
        self.by_digest = begin + bulk("EVALSHA", digest)
        self.by_source = begin + bulk("EVAL", source)

    def command_at(self, error: str) -> str | None:
        """Return the Redis command that is called in the line that *error* names; None if there is none."""
        line = re.search(r"user_script: ?(\d+)", error)
        if line is None or not 0 < int(line[1]) <= len(self._lines):
            return None
        called = re.search(r"redis\.call\('(\w+)'", self._lines[int(line[1]) - 1])
        return called and called[1]

    def accepts(self, reply: object, token: bytes) -> bool:
        """Return whether *reply* has the form of a reply of this script to the request with *token*."""
        if not isinstance(reply, list) or not reply or reply[0] != token:
            return False
        if self is FOREIGN_KEYS:
            return all(isinstance(key, bytes) for key in reply[1:])
        if len(reply) < 2 or not isinstance(answer := reply[1], int):
            return False
        end = 2 + self.numbers.get(answer, 0)
        if answer in self.entries and not isinstance(reply[-1], bytes):
            return False
        if len(reply) != end + (answer in self.entries):
            return False
        for one in reply[2:end]:
            if not isinstance(one, int) and not (isinstance(one, bytes) and one.isdigit()):
                return False
        return True


_HAND_OFF = ("waiters.lua", "shared_hold.lua", "hand_off.lua")


def _request(*files: str, held: int) -> Script:
    """Return the script of a request. *held*: how many numbers follow the answer `HELD`."""
    return Script(*files, arguments=_ARGUMENTS + 2, numbers={HELD: held, 2: 2}, entries={2})


#: The scripts that request a lock, by mode.
REQUEST: Mapping[Mode, Script] = {
    EXCLUSIVE: _request(
        "hold.lua",
        "answers.lua",
        "request.lua",
        "restore_lifetime.lua",
        *_HAND_OFF,
        "queue.lua",
        "request_slow_path.lua",
        held=1,
    ),
    READ: _request(
        "hold.lua",
        "answers.lua",
        *_HAND_OFF,
        "queue.lua",
        "request_shared.lua",
        "read.lua",
        "restore_lifetime.lua",
        "request_slow_path.lua",
        held=2,
    ),
    PERMIT: _request(
        "hold.lua",
        "answers.lua",
        "waiters.lua",
        "shared_hold.lua",
        "queue.lua",
        "request_shared.lua",
        "permit.lua",
        held=3,
    ),
}
ACKNOWLEDGE = Script("hold.lua", "acknowledge.lua", arguments=_ARGUMENTS + 1)
_LEAVE = Script("hold.lua", *_HAND_OFF, "release_any.lua")
#: The scripts that release a hold, by mode.
RELEASE: Mapping[Mode, Script] = {
    EXCLUSIVE: Script(
        "release_fast_path.lua",
        "hold.lua",
        *_HAND_OFF,
        "release.lua",
        "release_any.lua",
        arguments=_ARGUMENTS + 1,
    ),
    READ: _LEAVE,
    PERMIT: _LEAVE,
}
DOWNGRADE = Script("hold.lua", "waiters.lua", "shared_hold.lua", "downgrade.lua")
CANCEL = Script("hold.lua", *_HAND_OFF, "cancel.lua", arguments=_ARGUMENTS + 1)
RENEW = Script("hold.lua", "waiters.lua", "shared_hold.lua", "requested_releases.lua", "renew.lua")
REQUEST_RELEASE = Script(
    "hold.lua", "waiters.lua", "shared_hold.lua", "requested_releases.lua", "request_release.lua"
)
FOREIGN_KEYS = Script("hold.lua", "foreign.lua")
BREAK = Script("hold.lua", *_HAND_OFF, "break.lua", arguments=_ARGUMENTS + 1)
RAISE_FENCE = Script(
    "hold.lua", "waiters.lua", "shared_hold.lua", "raise_fence.lua", arguments=_ARGUMENTS + 1, numbers={1: 1}
)

AGREE = Script("hold.lua", "agree_number.lua", arguments=_ARGUMENTS + 1)


def encode(
    script: Script,
    request: LockRequest,
    process: tuple[str, float, float],
    queue: bool = False,
    more: bytes = b"",
) -> bytes:
    """Return the bytes of a call of *script* for *request*.

    *process*: the process's id, and its acknowledgement window and ``fence_ttl`` in seconds. *queue*: whether
    to queue if the lock is taken. *more*: encoded arguments after those of all scripts.
    """
    token = request.token.encode()
    head = _head(
        script,
        request.key,
        request.ttl,
        (request.mode, request.span, request.permits, request.limit),
        queue,
        process,
        len(token),
    )
    return b"%b%b\r\n%b" % (head, token, more)


def encode_release(request: LockRequest, process: tuple[str, float, float]) -> bytes:
    """Return the bytes of a call that releases *request*.

    The release of an exclusive lock sends its fence numbers as the remnant, if they are known and the ttl is
    not too long.
    """
    more = b""
    if request.mode == EXCLUSIVE:
        more = b"$0\r\n\r\n"
        if request.number and request.ttl <= _LONGEST_REMNANT:
            left = b"%d %d" % (request.number, request.number + request.span)
            more = b"$%d\r\n%b\r\n" % (len(left), left)
    return encode(RELEASE[request.mode], request, process, more=more)


#: The last arguments of a request that does not queue.
NO_POLL = bulk(0, "")


@lru_cache(maxsize=8192)
def _head(
    script: Script,
    key: str,
    ttl: float,
    wish: tuple[Mode, int, int, int],
    queue: bool,
    process: tuple[str, float, float],
    length: int,
) -> bytes:
    """Encode a call of *script* up to its token, which is *length* bytes long."""
    hold = hold_key(key)
    name, ack_window, fence_ttl = process
    mode, span, permits, limit = wish
    # The span, see waiters.lua: the number of fence numbers, 0 to read, or permits and their limit.
    wanted = span if mode == EXCLUSIVE else 0 if mode == READ else f"{permits}/{limit}"
    arguments = bulk(
        _KEYS,
        hold,
        f"{hold}:fence",
        f"{hold}:queue",
        name,
        key,
        _milliseconds(ack_window),
        _milliseconds(fence_ttl),
        _milliseconds(ttl),
        wanted,
        int(queue),
    )
    return b"%b%b$%d\r\n" % (script.by_digest, arguments, length)


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def holder(state: bytes | None) -> tuple[int, str] | None:
    """Return number and token of the hold in *state*, the value of a hold's key; None: it is no hold."""
    held = _HOLD.fullmatch(state or b"")
    return held and (int(held[1]), held[2].decode("utf-8", "replace"))


def mode_of(token: str) -> Mode:
    """Return the mode of a hold by its *token*, or by the word that stands instead of one."""
    return _SHARED.get(token, EXCLUSIVE)


def number_of(token: str) -> int:
    """Return a number that identifies the permits of *token* without revealing the token."""
    return int(hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()[:12], 16)


def is_free(state: bytes | None) -> bool:
    """Return whether *state*, the value of a hold's key, says that the lock is free."""
    return state is None or _REMNANT.fullmatch(state) is not None


def hold_key(key: str) -> str:
    """Return the key of the hold. All keys of a lock share its hash tag, and so a slot of a cluster."""
    return f"{FORMAT}:{{{names.encode(key)}}}"


def key_of(command: bytes) -> bytes:
    """Return the first argument of *command*, which is the key in most commands."""
    return command.split(b"\r\n", 5)[4]


def channel_of(process: str) -> str:
    """Return the channel that *process* subscribes to."""
    return f"{FORMAT}:ch:{process}"
