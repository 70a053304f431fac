"""Redis, thousands of processes that wait for one name: what their polls cost the server.

One connection speaks for all of them: what is measured is what the server does.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

import redis

from bench.bench import Bench
from bench.crew import BenchError
from bench.locks import Silence
from bench.measures import Figures
from bench.table import Table, Target
from distlock.backends.base import Acquired, LockRequest, Queued
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.queue_entries import Poll

SIZES = (10, 1000, 5000)
#: A poll may cost another thing in front of a queue than at its end, and come more often.
PARTS, POLLS = 10, 20
MEASURES = ("poll", "poll_again", "core")


class Crowd:
    """*size* processes behind a holder, all of them behind one connection."""

    def __init__(self, url: str, size: int) -> None:
        self.size, self.key = size, f"bench:crowd-{size}"
        self._redis = redis.Redis.from_url(url)
        self._backend = RedisBackend(url, client_name="distlock-bench")
        self._backend.open(Silence())
        if not isinstance(self._backend.request(self._ask(3600.0)), Acquired):
            raise BenchError(f"{self.key} is not free.")
        #: Of each its id, what it knows of its latest poll, and its ask.
        self._waiting: list[tuple[str, dict[str, Poll], LockRequest]]
        self._waiting = [(secrets.token_hex(8), {}, self._ask(10.0)) for _ in range(size)]
        for number in range(size):
            self.poll(number)
        if (waiting := self._backend.inspect(self.key).waiting) != size:
            raise BenchError(f"{self.key}: {waiting} wait, and not {size}.")

    def _ask(self, ttl: float) -> LockRequest:
        return LockRequest(self.key, secrets.token_hex(16), ttl, span=64)

    def poll(self, number: int) -> Queued:
        """The waiter at this place asks again."""
        process, self._backend._entries._polls, request = self._waiting[number]
        caller = self._backend._caller
        caller.about = process, *caller.about[1:]
        answer = self._backend.request(request)
        if not isinstance(answer, Queued):
            raise BenchError(f"{self.key}: a poll behind a holder was answered with {answer}.")
        return answer

    def measure(self) -> Figures:
        """The mean cost of a poll, the mean time until the next one, and what all of them take of a core."""
        costs, pauses, core = [], [], 0.0
        for part in range(PARTS):
            numbers = [self.size * part // PARTS + number for number in range(min(POLLS, self.size // PARTS))]
            before = self._spent()
            again = [self.poll(number).poll for number in numbers]
            costs.append((self._spent() - before) / len(numbers))
            pauses.append(sum(again) / len(again))
            core += self.size / PARTS * costs[-1] / pauses[-1]
        return {"poll": sum(costs) / PARTS, "poll_again": sum(pauses) / PARTS, "core": core}

    def _spent(self) -> float:
        """Seconds that the server has spent in scripts."""
        told: dict[str, dict[str, float]] = self._redis.info("commandstats")
        return sum(told.get(f"cmdstat_{name}", {}).get("usec", 0.0) for name in ("evalsha", "eval")) / 1e6

    def close(self) -> None:
        self._backend.close()
        # Nobody polls any more, and the server is ours alone.
        self._redis.flushdb()
        self._redis.close()


def measure(bench: Bench) -> Iterator[Table]:
    crowds = {f"distlock, {size} wait": Crowd(bench.services.url("redis"), size) for size in SIZES}
    measured = {name: partial(crowd.measure) for name, crowd in crowds.items()}
    target = Target("core", 10.0, ours=f"distlock, {max(SIZES)} wait")
    yield Table(
        "crowd", "Redis, so many processes wait for one name", bench.in_turns(measured), MEASURES, [target]
    )
    for crowd in crowds.values():
        crowd.close()
