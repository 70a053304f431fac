r"""What operators see and do: holders, waiters, breaks, requested releases, and published status.

| key | value | lifetime |
|---|---|---|
| ``dl:2:process:<process>`` | hash: key -> the published row as JSON; "" -> host and pid | see below |
| ``dl:2:processes`` | hash: process -> roughly when its status expires | a day after the last publication |

The field "\0" of a process's hash has two times in milliseconds: the lifetime of the status, and the lifetime
of the key, which is longer by the longest lease of the process. With the remaining lifetime of the key, they
tell how long ago the process published.

``KEYS`` and ``SCAN`` are not used, because other users of the server may have a million keys. Each command
does little work, and names one key.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from distlock.backends.base import EXCLUSIVE, PERMIT, LockRequest, Mode, Sink
from distlock.backends.inspectable import MOST_SHOWN, Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import BoundedCalls, ScriptCaller
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.health import examine
from distlock.backends.redis.pending_releases import PendingReleases
from distlock.backends.redis.scripts import FORMAT, bulk, command, hold_key, holder, mode_of, number_of
from distlock.errors import BackendUnavailable

T = TypeVar("T")

#: A token begins with the name of its process, which has this many characters.
PROCESS_LENGTH = 16
#: The answer of ``renew.lua`` for a hold whose release was requested.
_RELEASE_REQUESTED = 2

PROCESSES = f"{FORMAT}:processes".encode()
_DAY_MS = 24 * 3600 * 1000
#: The number of fields of a hash that one command reads or writes.
_SOME = 200
#: The number of commands that are sent at once.
_AT_ONCE = 20
#: A process whose status expired this many seconds ago has ended, even if two clocks differ.
_DEAD = 3600.0

#: The fields of a process's hash that have its host and pid, and the lifetimes. No lock has these keys.
_ABOUT, _LIVES = b"", b"\0"

_SPECIAL = re.compile(rb"[*?\[\]\\]")


class RedisStatus(BoundedCalls, ABC):
    """The part of a backend that publishes the status of its process, and reads that of all processes."""

    process: str
    _has_published: bool = False

    @abstractmethod
    def _ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Send *commands* together and return the replies. Raises `BackendUnavailable` for an error."""

    def own_names(self) -> list[str]:
        """Return the names of this process, for each of which it subscribes to a channel."""
        return [self.process]

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        mine, ms = _entry(self.process), math.ceil((life + lease) * 1000)
        about, until = json.dumps([host, pid]), math.ceil(time.time() + life + lease)
        lives = json.dumps([math.ceil(life * 1000), ms])
        if not self._has_published:
            self._has_published = True
            with suppress(BackendUnavailable):
                self._remove_dead(deadline)
        (known, *_) = self._ask(
            [
                command("PEXPIRE", mine, ms),
                command("HSET", mine, _ABOUT, about, _LIVES, lives),
                command("PEXPIRE", mine, ms),
                command("HSET", PROCESSES, self.process, until),
                command("PEXPIRE", PROCESSES, _DAY_MS),
            ],
            self._by(deadline),
        )
        said = [part for row in rows for part in (row.key, _row_json(row))]
        commands = [command("HSET", mine, *some) for some in batched(said, 2 * _SOME)]
        commands += [command("HDEL", mine, *some) for some in batched(gone, _SOME)]
        for at_once in batched(commands, _AT_ONCE):
            self._ask(at_once, self._by(deadline))
        return bool(known)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        pattern = _SPECIAL.sub(rb"\\\g<0>", before.encode("utf-8", "surrogatepass")) + b"*"
        for process, _ in self._scan(PROCESSES, b"*", deadline):
            mine = _entry(process.decode("utf-8", "replace"))
            (about, lives), left = self._ask(_status_commands(mine), self._by(deadline))
            if about is None:
                # The process has ended, and its hash has expired.
                self._ask([command("HDEL", PROCESSES, process)], self._by(deadline))
                continue
            host, pid = _read_about(about)
            silent = _silent(lives, left)
            for field, value in self._scan(mine, pattern, deadline):
                if field not in (_ABOUT, _LIVES):
                    yield SeenProcess(process.decode(), host, pid, _row_in(field, value), silent)

    def withdraw_status(self, deadline: float = math.inf) -> None:
        """Withdraw the status of this process, when the client is closed."""
        if self._has_published:
            self._has_published = False
            gone = [command("DEL", _entry(self.process)), command("HDEL", PROCESSES, self.process)]
            self._ask(gone, self._by(deadline))

    def _remove_dead(self, deadline: float) -> None:
        """Remove processes that ended without a close, so that they don't accumulate."""
        too_old = time.time() - _DEAD
        for process, until in self._scan(PROCESSES, b"*", deadline):
            if float(until) < too_old:
                self._ask([command("HDEL", PROCESSES, process)], self._by(deadline))

    def _seen_processes(self, processes: Sequence[str], key: str, deadline: float) -> list[SeenProcess]:
        """Return what each of *processes* has published of itself and of *key*."""
        asked = []
        for process in processes:
            asked += _status_commands(_entry(process), key)
        replies = self._ask(asked, deadline) if asked else []
        seen = []
        for process, ((about, lives, row), left) in zip(processes, batched(replies, 2), strict=True):
            host, pid = _read_about(about) if about else ("", 0)
            known = _row_in(key.encode(), row) if row else None
            seen.append(SeenProcess(process, host, pid, known, _silent(lives, left)))
        return seen

    def _scan(self, key: bytes, pattern: bytes, deadline: float) -> Iterator[tuple[bytes, bytes]]:
        """Yield the fields and values of a hash. A field that moves meanwhile may come twice."""
        cursor = b"0"
        while True:
            asked = command("HSCAN", key, cursor, "MATCH", pattern, "COUNT", _SOME)
            ((cursor, found),) = self._ask([asked], self._by(deadline))
            yield from zip(found[::2], found[1::2], strict=True)
            if cursor == b"0":
                return


class RedisInspection(RedisStatus):
    """The part of `RedisBackend` that operators use. Acquiring and releasing don't need it."""

    _caller: ScriptCaller
    _releases: PendingReleases
    _sink: Sink | None
    _max_connections: int
    #: Whether the URL names a cluster, so that the server may be one of its nodes.
    _in_cluster = False
    #: Whether this process has a connection for a subscription at the server.
    _listens = True

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        deadline = self._by(deadline)
        self._releases.finish(key, deadline)
        place = hold_key(key)
        queue = f"{place}:queue"
        asked = [
            command("GET", place),
            command("PTTL", place),
            command("LRANGE", queue, 0, MOST_SHOWN - 1),
            command("LLEN", queue),
        ]
        held, left, first, waiting = self._ask(asked, deadline)
        names = [entry.rpartition(b" ")[2][:PROCESS_LENGTH].decode("utf-8", "replace") for entry in first]
        hold = holder(held)
        if hold is None:
            return KeyState(queue=self._seen_processes(names, key, deadline), waiting=waiting)
        number, token = hold
        if (mode := mode_of(token)) != EXCLUSIVE:
            return self._shared(place, key, mode, number, names, waiting, deadline)
        remaining = left / 1000 if left >= 0 else math.inf
        first, *queued = self._seen_processes([token[:PROCESS_LENGTH], *names], key, deadline)
        return KeyState(first, number, remaining, queued, waiting)

    def _shared(
        self, place: str, key: str, mode: Mode, number: int, names: list[str], waiting: int, deadline: float
    ) -> KeyState:
        """Return the state of a hold that several processes share. The lease that ends first comes first."""
        asked = [
            command("TIME"),
            command("ZRANGE", f"{place}:holders", 0, -1, "WITHSCORES"),
            command("GET", f"{place}:limit"),
        ]
        (seconds, micros), told, limit = self._ask(asked, deadline)
        now = int(seconds) + int(micros) / 1e6
        inside = [
            (*member.decode("utf-8", "replace").partition(" ")[::2], float(ends) / 1000 - now)
            for member, ends in batched(told, 2)
            if float(ends) / 1000 > now
        ]
        if not inside:
            return KeyState(queue=self._seen_processes(names, key, deadline), waiting=waiting)
        tokens = [token for _, token, _ in inside[: 1 + MOST_SHOWN]]
        if mode == PERMIT:
            number = number_of(tokens[0])
        seen = self._seen_processes([*(token[:PROCESS_LENGTH] for token in tokens), *names], key, deadline)
        return KeyState(
            seen[0],
            number,
            inside[0][2],
            seen[len(tokens) :],
            waiting,
            mode=mode,
            others=len(inside) - 1,
            beside=seen[1 : len(tokens)],
            out=sum(int(permits) for permits, _, _ in inside),
            limit=int(limit) if mode == PERMIT and limit is not None and limit.isdigit() else 0,
        )

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._call_without_hold(scripts.BREAK, key, self._by(deadline), bulk(number))

    def send(self, *words: str | int) -> object:
        """Send one command. Return the reply, or None if the server refused. Raises `BackendUnavailable`."""
        try:
            (reply,) = self._ask([command(*words)], self._by(math.inf))
        except BackendUnavailable as error:
            if isinstance(error.__cause__, ReplyError):
                return None
            raise
        return reply

    def examine(self) -> Iterator[Finding]:
        return examine(self.send, self._max_connections, self._in_cluster, self._listens)

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._releases.finish(key, deadline)
        return self._call_without_hold(scripts.REQUEST_RELEASE, key, deadline)

    def _call_without_hold(
        self, script: scripts.Script, key: str, deadline: float, more: bytes = b""
    ) -> bool:
        """Call *script*, for which the caller needs no hold. Return whether the script found a hold."""
        nobody = LockRequest(key, secrets.token_hex(16), 1.0, 1)
        (reply,) = self._caller.call(script, [nobody], deadline, more)
        return bool(reply[1])

    def _note_release_requested(
        self, requests: Sequence[LockRequest], replies: Sequence[Sequence[Any]]
    ) -> None:
        """Notify the engine of those *requests* whose renewal says that a release was requested."""
        for request, reply in zip(requests, replies, strict=True):
            if reply[1] == _RELEASE_REQUESTED and self._sink is not None:
                self._sink.release_requested(request.key, request.token)


def batched(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield *whole* in parts of *size*: Python 3.11 has no `itertools.batched`."""
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def _status_commands(entry: bytes, *keys: str) -> list[bytes]:
    """Return the commands that read the status in *entry*, its rows of *keys*, and its remaining lifetime."""
    return [command("HMGET", entry, _ABOUT, _LIVES, *keys), command("PTTL", entry)]


def _silent(lives: bytes | None, left: int) -> float:
    """Return `SeenProcess.silent` of an entry that has *left* milliseconds to live, by the server's clock."""
    if lives is None or left < 0:
        return 0.0  # An older version published the entry, or it has just expired.
    with _translating_errors():
        life, kept = json.loads(lives)
    since = kept - left
    return since / 1000 if since > life else 0.0


def _entry(process: str) -> bytes:
    return f"{FORMAT}:process:{process}".encode()


def _row_json(row: StatusRow) -> str:
    return json.dumps(row.parts()[1:], separators=(",", ":"))


def _read_about(value: bytes) -> tuple[str, int]:
    with _translating_errors():
        host, pid = json.loads(value)
    return host, pid


def _row_in(key: bytes, value: bytes) -> StatusRow:
    with _translating_errors():
        return StatusRow.of_parts([key.decode("utf-8", "replace"), *json.loads(value)])


@contextmanager
def _translating_errors() -> Iterator[None]:
    """Raise `BackendUnavailable` if the block can't read what a process has published."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise BackendUnavailable(f"The status that a process published can't be read: {error}") from error
