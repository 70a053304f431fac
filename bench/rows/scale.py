"""Rows on Redis with more and more threads or processes: do costs grow, and does anybody starve?"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import redis

from bench.bench import Bench, Contestant
from bench.contest import ContestPlan
from bench.crew import BenchError
from bench.figures import Figures, Table, Target
from bench.locks import Silence
from distlock.backends.base import Acquired, LockRequest, Queued
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.queue_entries import Poll

#: The number of threads in all processes together.
FEW_WAITERS, MANY_WAITERS = 10, 200
MORE_WAITERS = (2, 50)
WAITERS_TARGETS = (
    Target(
        "cpu",
        1.25,
        ours=f"distlock, {MANY_WAITERS}",
        peer=f"distlock, {FEW_WAITERS}",
        why="from-10-to-200-waiters",
    ),
)

PROCESSES, MORE_PROCESSES = (4, 8), (1, 2)
#: A release wakes only one process, so a hand-off has to cost the same with eight processes as with four.
PROCESSES_TARGETS = tuple(
    Target(measure, bound, ours="distlock, 8", peer="distlock, 4")
    for measure, bound in (("commands", 1.1), ("wakes", 1.25))
)

#: The threads of the large process and of the small one; for how many seconds the lock is held.
MANY, FEW, UNEVEN_BODY = 40, 2, 0.001
#: How many times longer a round is, because starvation shows only then (for peers, which have no target, a
#: fifth of that); and the most rounds.
UNEVEN_LONGER, UNEVEN_ROUNDS = 20, 2
#: A turn of the large process ends with the first release after 50 ms; a busy machine may take twice as long.
#: Each process has to get about half of the acquisitions, however many threads wait.
UNEVEN_TARGETS = (
    Target("few_longest", 100.0, each=True),
    Target("few_share", 40.0, least=True, each=True),
    Target("few_share", 60.0, each=True),
)
UNEVEN_MEASURES = ("rate", "few_share", "few_p99", "few_longest", "p99", "longest", "jain", "cpu")

CROWD_SIZES = (10, 1000, 5000)
#: How many parts of the queue are measured, and polls in each: the front may cost more, and poll more often.
CROWD_PARTS, CROWD_POLLS = 10, 20


def measure_waiters(bench: Bench) -> Iterator[Table]:
    counts = sorted((FEW_WAITERS, MANY_WAITERS, *(() if bench.quick else MORE_WAITERS)))
    for processes in (1,) if bench.quick else (1, 2):
        with bench.crews(bench.few(("distlock",), ("redis-py",)), processes, "redis") as crews:
            title = (
                f"Redis, so many threads of {'one process' if processes == 1 else f'{processes} processes'}"
            )
            measured = bench if processes == 1 else bench.lightly()
            contestants = [
                Contestant(crew, ContestPlan(waiters // processes, measured.seconds), suffix=f", {waiters}")
                for crew in crews
                for waiters in counts
            ]
            targets = WAITERS_TARGETS if processes == 1 else ()
            yield measured.contest("waiters", title, contestants, "redis", targets)


def measure_processes(bench: Bench) -> Iterator[Table]:
    kinds = bench.few(("distlock",), ("redis-py", "python-redis-lock"))
    with bench.crews(kinds, max(PROCESSES), "redis") as crews:
        # These figures vary little from round to round.
        measured = bench if bench.quick else bench.lightly()
        contestants = [
            Contestant(crew, ContestPlan(seconds=measured.seconds), processes, f", {processes}")
            for crew in crews
            for processes in sorted(PROCESSES if bench.quick else PROCESSES + MORE_PROCESSES)
        ]
        title = "Redis, so many processes of 1 thread on one name, a body of 0 ms"
        yield measured.contest("processes", title, contestants, "redis", PROCESSES_TARGETS)


def measure_uneven(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(("distlock",), ("redis-py", "python-redis-lock")), 2, "redis") as crews:
        title = f"Redis, a process of {MANY} threads and one of {FEW}, a body of {UNEVEN_BODY * 1000:g} ms"
        longer = 1 if bench.quick else UNEVEN_LONGER
        contestants = [
            Contestant(crew, ContestPlan(MANY, seconds, body=UNEVEN_BODY, few=FEW))
            for crew in crews
            for seconds in [bench.seconds * (longer if crew.kind == "distlock" else longer / 5)]
        ]
        yield replace(bench, rounds=min(bench.rounds, UNEVEN_ROUNDS)).contest(
            "uneven", title, contestants, "redis", UNEVEN_TARGETS, UNEVEN_MEASURES
        )


def measure_crowd(bench: Bench) -> Iterator[Table]:
    crowds = {
        f"distlock, {size} wait": PollingCrowd(bench.services.url("redis"), size) for size in CROWD_SIZES
    }
    rounds = bench.in_turns({name: crowd.measure for name, crowd in crowds.items()})
    target = Target("core", 10.0, ours=f"distlock, {max(CROWD_SIZES)} wait")
    title = "Redis, so many processes wait for one name"
    yield Table("crowd", title, rounds, ("poll", "poll_again", "core"), [target])
    for crowd in crowds.values():
        crowd.close()


class PollingCrowd:
    """*size* processes that wait behind a holder, played by one backend."""

    def __init__(self, url: str, size: int) -> None:
        self.size, self.key = size, f"bench:crowd-{size}"
        self._redis = redis.Redis.from_url(url)
        self._backend = RedisBackend(url, client_name="distlock-bench")
        self._backend.open(Silence())
        if not isinstance(self._backend.request(self._new_request(3600.0)), Acquired):
            raise BenchError(f"{self.key} is not free.")
        #: For each waiter: its process id, its state of polls, and its request.
        self._waiting: list[tuple[str, dict[str, Poll], LockRequest]]
        self._waiting = [(secrets.token_hex(8), {}, self._new_request(10.0)) for _ in range(size)]
        for number in range(size):
            self.poll(number)
        if (waiting := self._backend.inspect(self.key).waiting) != size:
            raise BenchError(f"{self.key}: {waiting} wait, and not {size}.")

    def _new_request(self, ttl: float) -> LockRequest:
        return LockRequest(self.key, secrets.token_hex(16), ttl, span=64)

    def poll(self, number: int) -> Queued:
        """Send the request of waiter *number* again."""
        process, self._backend._entries._polls, request = self._waiting[number]
        caller = self._backend._caller
        caller.about = process, *caller.about[1:]
        answer = self._backend.request(request)
        if not isinstance(answer, Queued):
            raise BenchError(f"{self.key}: a poll behind a holder was answered with {answer}.")
        return answer

    def measure(self) -> Figures:
        """Return the mean cost of a poll, the mean pause after it, and the share of a core for all polls."""
        costs, pauses, core = [], [], 0.0
        for part in range(CROWD_PARTS):
            numbers = [
                self.size * part // CROWD_PARTS + number
                for number in range(min(CROWD_POLLS, self.size // CROWD_PARTS))
            ]
            before = self._spent()
            again = [self.poll(number).poll for number in numbers]
            costs.append((self._spent() - before) / len(numbers))
            pauses.append(sum(again) / len(again))
            core += self.size / CROWD_PARTS * costs[-1] / pauses[-1]
        return {"poll": sum(costs) / CROWD_PARTS, "poll_again": sum(pauses) / CROWD_PARTS, "core": core}

    def _spent(self) -> float:
        """Return the seconds that the server has spent in scripts."""
        told: dict[str, dict[str, float]] = self._redis.info("commandstats")
        return sum(told.get(f"cmdstat_{name}", {}).get("usec", 0.0) for name in ("evalsha", "eval")) / 1e6

    def close(self) -> None:
        self._backend.close()
        # Nobody polls any more, and only the bench uses this server.
        self._redis.flushdb()
        self._redis.close()
