"""One of the servers, as those see it that look at locks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from distlock.backends.base import LockRequest
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Seen
from distlock.backends.redis import RedisBackend, scripts
from distlock.backends.redis.health import examine
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.redis.scripts import bulk, command, hold_key, holder


class OneHold(NamedTuple):
    """One server's part of a hold, with the status that its process has published."""

    token: str
    number: int
    #: The remaining lease on that server, seconds.
    remaining: float
    seen: Seen


class Member(RedisBackend):
    def agree(self, request: LockRequest, number: int) -> bool:
        """Count the hold of *request*, of which nothing was given out yet, from *number* on.

        Returns whether it has one.
        """
        (reply,) = self._caller.call(scripts.AGREE, [request], self._by(math.inf), more=bulk(number))
        return bool(reply[1])

    def examine(self) -> Iterator[Finding]:
        return examine(self.send, self._max_connections, listens=False)

    def start_over(self) -> None:
        """Withdraw the published status from this server."""
        self.withdraw_status(self._by(math.inf))

    def hold_of(self, key: str) -> OneHold | None:
        deadline, place = self._by(math.inf), hold_key(key)
        held, left = self._ask([command("GET", place), command("PTTL", place)], deadline)
        hold = holder(held)
        if hold is None:
            return None
        number, token = hold
        (seen,) = self._seen([token[:PROCESS_LENGTH]], key, deadline)
        return OneHold(token, number, left / 1000 if left >= 0 else math.inf, seen)
