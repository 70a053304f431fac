"""Rows with contention for one name: threads of two processes, processes of one thread each, and bursts."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import CONTEST, Bench, Contestant
from bench.contest import ContestPlan
from bench.crew import Crew
from bench.figures import Table, Target

#: Single-threaded processes, like sync workers of gunicorn: every hand-off is between processes.
SYNC_WORKERS = 8
#: Processes with many threads, like gthread workers: most hand-offs are local.
GTHREAD_WORKERS, THREADS = 2, 25

ON_PUSH = "distlock, on the push"
BETWEEN = ("distlock", ON_PUSH, "redis-py", "python-redis-lock", "a bare queue", "RLock", "RFairLock")
#: With a server that is farther away, only the first three are contestants of a target.
BETWEEN_FAR, BETWEEN_FAR_MORE = BETWEEN[:3], BETWEEN[3:]
BETWEEN_WHY = "redis-between-processes"
BETWEEN_NEAR_TARGETS = (
    Target("rate", 1.8, peer="python-redis-lock", least=True, why=BETWEEN_WHY),
    Target("rate", 2.5, ours=ON_PUSH, peer="python-redis-lock", least=True, why=BETWEEN_WHY),
    Target("p99", 0.1, peer="redis-py", why=BETWEEN_WHY),
    # redis-py's p99 is mostly that of one process, which takes the lock again and again: see "longest".
    Target("longest", 0.1, peer="redis-py"),
    Target("rate", 2.0, peer="RLock", least=True),
    Target("rate", 2.0, peer="RFairLock", least=True),
    Target("commands", 10.0, ours=ON_PUSH, why=BETWEEN_WHY),
)
BETWEEN_FAR_TARGETS = (Target("rate", 1.8, peer="redis-py", least=True, why=BETWEEN_WHY),)

CONTENDED = ("distlock", "redis-py", "RLock", "RFairLock")
CONTENDED_MORE = ("python-redis-lock", "pottery", "sherlock", "django-redis")
CONTENDED_WHY = "one-name-many-threads"
CONTENDED_TARGETS = (
    Target("rate", 6.0, peer="redis-py", least=True, why=CONTENDED_WHY),
    Target("rate", 20.0, peer="RLock", least=True),
    Target("rate", 40.0, peer="RFairLock", least=True),
    Target("p99", 0.05, peer="redis-py"),
    Target("jain", 0.99, least=True),
    Target("requests", 0.1),
)

BURST_MORE = ("python-redis-lock", "pottery", "sherlock", "a bare queue")
BURST_BODY = 0.001
#: Milliseconds until all threads of a burst have held the lock, if hand-offs took no time.
BURST_IDEAL = GTHREAD_WORKERS * THREADS * BURST_BODY * 1000
BURST_TARGETS = (
    Target("makespan", 1.25 * BURST_IDEAL, why="a-burst"),
    Target("makespan", 1 / 15, peer="redis-py"),
)
BURST_MEASURES = ("makespan", "p50", "p99", "process_changes", "cpu", "server_cpu", "requests", "commands")

#: The mean pause between two acquisitions of a thread in the row "open", seconds.
OPEN_THINK = 0.01

ZOOKEEPER = ("distlock", "kazoo", "Curator")
ZOOKEEPER_BETWEEN_TARGETS = (
    Target("rate", 1.5, peer="kazoo", least=True, why="zookeeper-between-processes"),
    Target("rate", 2.0, peer="Curator", least=True),
)
#: How many times kazoo's rate is the target, by the seconds for which the lock is held.
ZOOKEEPER_CONTENDED_BOUNDS = {0.0: 30.0, 0.001: 1.8}


def measure_between(bench: Bench) -> Iterator[Table]:
    for distance, words in ((0.0, "near"), (0.001, "1 ms farther away")):
        kinds = bench.few(BETWEEN_FAR, BETWEEN_FAR_MORE) if distance else BETWEEN
        with bench.crews(kinds, SYNC_WORKERS, "redis", distance) as crews:
            for body in bench.thorough([0.0], [] if distance else [0.001, 0.005]):
                title = f"Redis {words}, {SYNC_WORKERS} processes of 1 thread, a body of {body * 1000:g} ms"
                measured = bench.lightly() if body else bench
                plan = ContestPlan(seconds=measured.seconds, body=body)
                targets = BETWEEN_FAR_TARGETS if distance else () if body else BETWEEN_NEAR_TARGETS
                yield measured.contest("between", title, all_with(crews, plan), "redis", targets)


def measure_contended(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(CONTENDED, CONTENDED_MORE), GTHREAD_WORKERS, "redis") as crews:
        for body in bench.thorough([0.0], [0.001, 0.005]):
            title = (
                f"Redis, {GTHREAD_WORKERS} processes of {THREADS} threads on one name, "
                f"a body of {body * 1000:g} ms"
            )
            measured = bench.lightly() if body else bench
            contestants = all_with(crews, ContestPlan(THREADS, measured.seconds, body=body))
            targets = () if body else CONTENDED_TARGETS
            yield measured.contest("contended", title, contestants, "redis", targets)


def measure_burst(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(("distlock", "redis-py"), BURST_MORE), GTHREAD_WORKERS, "redis") as crews:
        title = (
            f"Redis, {GTHREAD_WORKERS} processes of {THREADS} threads, each once, "
            f"a body of {BURST_BODY * 1000:g} ms"
        )
        contestants = all_with(crews, ContestPlan(THREADS, times=1, body=BURST_BODY))
        yield bench.contest("burst", title, contestants, "redis", BURST_TARGETS, BURST_MEASURES)


def measure_open(bench: Bench) -> Iterator[Table]:
    kinds = bench.few(("distlock", "redis-py"), ("python-redis-lock", "a bare queue"))
    with bench.crews(kinds, GTHREAD_WORKERS, "redis") as crews:
        title = (
            f"Redis, {GTHREAD_WORKERS} processes of {THREADS} threads, "
            f"{OPEN_THINK * 1000:g} ms between two acquisitions"
        )
        contestants = all_with(crews, ContestPlan(THREADS, bench.seconds, think=OPEN_THINK))
        targets = [Target("served", 95.0, least=True, why="served-of-what-was-offered")]
        yield bench.contest("open", title, contestants, "redis", targets, ("served", *CONTEST))


def measure_burners(bench: Bench) -> Iterator[Table]:
    kinds = bench.few(("distlock", "redis-py"), ("python-redis-lock",))
    with bench.crews(kinds, GTHREAD_WORKERS, "redis") as crews:
        title = f"Redis, {GTHREAD_WORKERS} processes of {THREADS} threads, and one in each that only computes"
        contestants = all_with(crews, ContestPlan(THREADS, bench.seconds, burners=1))
        targets = [Target("rate", 1.0, peer="redis-py", least=True)]
        yield bench.contest("burners", title, contestants, "redis", targets)


def measure_between_zookeeper(bench: Bench) -> Iterator[Table]:
    with bench.crews(ZOOKEEPER, SYNC_WORKERS, "zookeeper") as crews:
        for body in bench.thorough([0.0], [0.001]):
            title = (
                f"ZooKeeper, {SYNC_WORKERS} processes of 1 thread on one name, a body of {body * 1000:g} ms"
            )
            measured = bench.lightly() if body else bench
            contestants = all_with(crews, ContestPlan(seconds=measured.seconds, body=body))
            targets = () if body else ZOOKEEPER_BETWEEN_TARGETS
            yield measured.contest("between-zookeeper", title, contestants, "zookeeper", targets)


def measure_contended_zookeeper(bench: Bench) -> Iterator[Table]:
    with bench.crews(ZOOKEEPER, GTHREAD_WORKERS, "zookeeper") as crews:
        for body, bound in ZOOKEEPER_CONTENDED_BOUNDS.items():
            title = (
                f"ZooKeeper, {GTHREAD_WORKERS} processes of {THREADS} threads, a body of {body * 1000:g} ms"
            )
            contestants = all_with(crews, ContestPlan(THREADS, bench.seconds, body=body))
            targets = [Target("rate", bound, peer="kazoo", least=True, why="one-name-many-threads")]
            if not body:
                targets.append(Target("rate", 15.0, peer="Curator", least=True))
            yield bench.contest("contended-zookeeper", title, contestants, "zookeeper", targets)


def measure_file(bench: Bench) -> Iterator[Table]:
    """Measure locks in files beside a bare ``flock``, which has no order and no fence."""
    with bench.crews(("distlock", "flock"), 2, "file") as crews:
        yield bench.alone("file", "Files, one thread, nobody else wants the lock", crews[:], "file")
        title = "Files, 2 processes of 1 thread on one name, a body of 0 ms"
        contestants = all_with(crews, ContestPlan(seconds=bench.seconds))
        yield bench.contest("file", title, contestants, "file", [Target("hand_over", 5.0)])


def all_with(crews: list[Crew], plan: ContestPlan) -> list[Contestant]:
    """Return a contestant of each crew, all with the same plan."""
    return [Contestant(crew, plan) for crew in crews]
