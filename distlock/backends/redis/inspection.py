"""What a Redis server shows of its locks, and how one is broken there."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator

from distlock.backends.base import EXCLUSIVE, PERMIT, LockRequest, Mode
from distlock.backends.findings import Finding
from distlock.backends.inspectable import MOST_SHOWN, Sight
from distlock.backends.redis import scripts
from distlock.backends.redis.announcements import Announcements, batched
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.examining import examine
from distlock.backends.redis.scripts import bulk, command, hold_key, holder, mode_of, number_of
from distlock.backends.redis.unanswered import Unanswered
from distlock.errors import BackendUnavailable

#: So many characters of a token name its process.
PROCESS_LENGTH = 16


class Inspection(Announcements):
    """The part of `RedisBackend` that is not on the way of any lock."""

    _calls: Calls
    _unanswered: Unanswered
    _max_connections: int

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        deadline = self._by(deadline)
        self._unanswered.finish(key, deadline)
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
            return Sight(queue=self._seen(names, key, deadline), waiting=waiting)
        number, token = hold
        if (mode := mode_of(token)) != EXCLUSIVE:
            return self._shared(place, key, mode, number, names, waiting, deadline)
        remaining = left / 1000 if left >= 0 else math.inf
        first, *queued = self._seen([token[:PROCESS_LENGTH], *names], key, deadline)
        return Sight(first, number, remaining, queued, waiting)

    def _shared(
        self, place: str, key: str, mode: Mode, number: int, names: list[str], waiting: int, deadline: float
    ) -> Sight:
        """What several have at once. The first is the one whose lease ends first."""
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
            return Sight(queue=self._seen(names, key, deadline), waiting=waiting)
        tokens = [token for _, token, _ in inside[: 1 + MOST_SHOWN]]
        if mode == PERMIT:
            number = number_of(tokens[0])
        seen = self._seen([*(token[:PROCESS_LENGTH] for token in tokens), *names], key, deadline)
        return Sight(
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
        nobody = LockRequest(key, secrets.token_hex(16), 1.0, 1)
        (reply,) = self._calls.call(scripts.BREAK, [nobody], self._by(deadline), more=bulk(number))
        return bool(reply[1])

    def send(self, *words: str | int) -> object:
        """The reply to one command; None: the server refused it. Raises `BackendUnavailable`."""
        try:
            (reply,) = self._ask([command(*words)], self._by(math.inf))
        except BackendUnavailable as error:
            if isinstance(error.__cause__, ReplyError):
                return None
            raise
        return reply

    def examine(self) -> Iterator[Finding]:
        return examine(self.send, self._max_connections)
