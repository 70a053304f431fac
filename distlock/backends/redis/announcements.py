"""What processes say of themselves in Redis.

| key | what it is | lives for |
|---|---|---|
| ``dl:2:process:<process>`` | hash: key -> what is said of it, as JSON; "" -> host and pid | some seconds |
| ``dl:2:processes`` | hash: process -> until when it spoke for, roughly | a day after the last one spoke |

The field "\\0" of an entry says for how long it is true and for how long it is kept, milliseconds: what is
left of the entry tells how long ago its process spoke. It is kept for the longest of its leases, too.

Nothing is searched for with ``KEYS`` or ``SCAN``: other users may have a million keys there. Each command has
a small part of the whole to do, and names one key.
"""

from __future__ import annotations

import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from distlock.backends.inspectable import Row, Seen
from distlock.backends.redis.scripts import FORMAT, command
from distlock.errors import BackendUnavailable

T = TypeVar("T")

PROCESSES = f"{FORMAT}:processes".encode()
_DAY_MS = 24 * 3600 * 1000
#: How many fields of a hash one command reads or writes.
_SOME = 200
#: How many commands are sent at once.
_AT_ONCE = 20
#: A process that has not spoken for so many seconds is dead, whatever the difference between two clocks is.
_DEAD = 3600.0

#: The field that says for how long an entry is true. No key is called so.
_LIVES = b"\0"

_SPECIAL = re.compile(rb"[*?\[\]\\]")


class Announcements(ABC):
    """Of a backend: what its process says, and what it sees of the others."""

    process: str
    _has_spoken: bool = False

    @abstractmethod
    def _ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """The replies to *commands*, sent together. Raises `BackendUnavailable` for an error."""

    @abstractmethod
    def _by(self, deadline: float) -> float:
        """The end of a call that begins now and may last until *deadline*."""

    def own_names(self) -> list[str]:
        """Those by which others tell this process something."""
        return [self.process]

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        mine, ms = _entry(self.process), math.ceil((life + lease) * 1000)
        about, until = json.dumps([host, pid]), math.ceil(time.time() + life + lease)
        lives = json.dumps([math.ceil(life * 1000), ms])
        if not self._has_spoken:
            self._has_spoken = True
            with suppress(BackendUnavailable):
                self._bury_the_dead(deadline)
        (known, *_) = self._ask(
            [
                command("PEXPIRE", mine, ms),
                command("HSET", mine, "", about, _LIVES, lives),
                command("PEXPIRE", mine, ms),
                command("HSET", PROCESSES, self.process, until),
                command("PEXPIRE", PROCESSES, _DAY_MS),
            ],
            self._by(deadline),
        )
        said = [part for row in rows for part in (row.key, _written(row))]
        commands = [command("HSET", mine, *some) for some in batched(said, 2 * _SOME)]
        commands += [command("HDEL", mine, *some) for some in batched(gone, _SOME)]
        for at_once in batched(commands, _AT_ONCE):
            self._ask(at_once, self._by(deadline))
        return bool(known)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        pattern = _SPECIAL.sub(rb"\\\g<0>", before.encode("utf-8", "surrogatepass")) + b"*"
        for process, _ in self._scan(PROCESSES, b"*", deadline):
            mine = _entry(process.decode("utf-8", "replace"))
            (about, lives), left = self._ask(_asked_of(mine, ""), self._by(deadline))
            if about is None:
                # It has ended, and its entry with it.
                self._ask([command("HDEL", PROCESSES, process)], self._by(deadline))
                continue
            host, pid = _read_about(about)
            silent = _silent(lives, left)
            for field, value in self._scan(mine, pattern, deadline):
                if field and field != _LIVES:
                    yield Seen(process.decode(), host, pid, _read(field, value), silent)

    def fall_silent(self, deadline: float) -> None:
        """Nothing is said any more, as a close wants it."""
        if self._has_spoken:
            self._has_spoken = False
            gone = [command("DEL", _entry(self.process)), command("HDEL", PROCESSES, self.process)]
            self._ask(gone, deadline)

    def _bury_the_dead(self, deadline: float) -> None:
        """Forget the processes that ended without a word, so that they do not pile up where nobody looks."""
        too_old = time.time() - _DEAD
        for process, until in self._scan(PROCESSES, b"*", deadline):
            if float(until) < too_old:
                self._ask([command("HDEL", PROCESSES, process)], self._by(deadline))

    def _seen(self, processes: Sequence[str], key: str, deadline: float) -> list[Seen]:
        asked = []
        for process in processes:
            asked += _asked_of(_entry(process), "", key)
        replies = self._ask(asked, deadline) if asked else []
        seen = []
        for process, ((about, lives, row), left) in zip(processes, batched(replies, 2), strict=True):
            host, pid = _read_about(about) if about else ("", 0)
            known = _read(key.encode(), row) if row else None
            seen.append(Seen(process, host, pid, known, _silent(lives, left)))
        return seen

    def _scan(self, key: bytes, pattern: bytes, deadline: float) -> Iterator[tuple[bytes, bytes]]:
        """The fields and values of a hash, some at a time. One that moves meanwhile may come twice."""
        cursor = b"0"
        while True:
            asked = command("HSCAN", key, cursor, "MATCH", pattern, "COUNT", _SOME)
            ((cursor, found),) = self._ask([asked], self._by(deadline))
            yield from zip(found[::2], found[1::2], strict=True)
            if cursor == b"0":
                return


def batched(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def _asked_of(entry: bytes, about: str, *keys: str) -> list[bytes]:
    """Return the commands for some fields of *entry*, and for how long it lives yet."""
    return [command("HMGET", entry, about, _LIVES, *keys), command("PTTL", entry)]


def _silent(lives: bytes | None, left: int) -> float:
    """Return `Seen.silent` of an entry that lives for *left* milliseconds yet, by the clock of its server."""
    if lives is None or left < 0:
        return 0.0  # Of an older process, or one that has just ended.
    try:
        life, kept = json.loads(lives)
    except (ValueError, TypeError) as error:
        raise _not_ours(error) from error
    since = kept - left
    return since / 1000 if since > life else 0.0


def _entry(process: str) -> bytes:
    return f"{FORMAT}:process:{process}".encode()


def _written(row: Row) -> str:
    return json.dumps(row.parts()[1:], separators=(",", ":"))


def _read_about(value: bytes) -> tuple[str, int]:
    try:
        host, pid = json.loads(value)
    except (ValueError, TypeError) as error:
        raise _not_ours(error) from error
    return host, pid


def _read(key: bytes, value: bytes) -> Row:
    try:
        return Row.of_parts([key.decode("utf-8", "replace"), *json.loads(value)])
    except (ValueError, TypeError) as error:
        raise _not_ours(error) from error


def _not_ours(error: Exception) -> BackendUnavailable:
    return BackendUnavailable(f"What a process says of itself is not ours to read: {error}")
