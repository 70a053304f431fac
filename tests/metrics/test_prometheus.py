"""Metrics by prometheus_client: what they count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import prometheus_client
import pytest

import distlock
from distlock import metrics
from distlock.testing.waits import engine_of
from distlock.web import guard
from tests.redis_server import eventually

PATIENCE = 60


def value(name: str, **labels: str) -> float:
    """The sum of *name* over all series that have *labels*."""
    return sum(
        sample.value
        for metric in prometheus_client.REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@pytest.fixture
def alias(request: pytest.FixtureRequest) -> str:
    """One that no other test has: the registry is one for all."""
    name: str = request.node.name
    return name


def connected(alias: str) -> distlock.Locks:
    return distlock.connect(f"memory://{alias}", listener=metrics.listener("prometheus", alias))


def test_each_result_is_counted(alias: str) -> None:
    locks = connected(alias)

    def count(result: str) -> float:
        return value("distlock_acquisitions_total", alias=alias, result=result)

    with locks.lock("product_1", "product_2"):
        assert value("distlock_holding", alias=alias) == 1
        assert locks.lock("product_1").acquire(timeout=0) is None
    assert (count("granted"), count("timed_out")) == (1, 1)
    assert value("distlock_wait_seconds_count", alias=alias) == 1
    assert value("distlock_held_seconds_count", alias=alias) == 1
    assert value("distlock_holding", alias=alias) == value("distlock_waiting", alias=alias) == 0
    capped = distlock.connect(
        f"memory://{alias}", max_waiters=1, listener=metrics.listener("prometheus", alias)
    )
    with capped.lock("product_1"):

        def wait() -> None:
            with capped.lock("product_1"):
                pass

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: value("distlock_waiting", alias=alias) == 1, "one waits")
        eventually(lambda: engine_of(capped).queues.waiting == 1, "it is in the room")
        with pytest.raises(distlock.TooManyWaiters):
            capped.lock("product_1").acquire()
    waiter.join(PATIENCE)
    assert count("refused") == 1


def test_where_is_the_code_and_no_name_is_told(alias: str) -> None:
    with connected(alias).lock("product_secret"):
        pass
    assert value("distlock_wait_seconds_count", alias=alias) == 1
    shown = prometheus_client.generate_latest().decode()
    assert f"{test_where_is_the_code_and_no_name_is_told.__name__} (test_prometheus.py:" in shown
    assert "product_secret" not in shown


def test_a_reentrant_lock_of_several_names_is_held_until_its_last_name_is_given_back(alias: str) -> None:
    locks = connected(alias)
    with locks.rlock("a"):
        with locks.rlock("a", "b", "c"):
            assert value("distlock_holding", alias=alias) == 2
        assert value("distlock_holding", alias=alias) == 1
    assert value("distlock_holding", alias=alias) == 0
    assert value("distlock_held_seconds_count", alias=alias) == 2
    both = locks.rlock("a", "b").acquire()
    assert both is not None
    for name in "ab":
        assert value("distlock_holding", alias=alias) == 1
        locks.rlock(name).release()
    assert value("distlock_holding", alias=alias) == 0


class Failing:
    """A listener that fails where it can."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        def fail(*about: object) -> object:
            raise OSError("no space left on device")

        return fail


class FailingLater(Failing):
    def asked(self, names: tuple[str, ...], where: object) -> Failing:
        return Failing()


@pytest.mark.parametrize("listener", [Failing(), FailingLater()])
def test_a_listener_that_fails_changes_nothing_for_the_lock(
    alias: str, listener: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    locks = distlock.connect(f"memory://{alias}", listener=listener)  # type: ignore[arg-type]
    with locks.lock("a"):
        assert locks.lock("a").acquire(timeout=0) is None
    assert not locks.lock("a").locked()
    assert "A listener failed" in caplog.text


class Committing:
    """Transactions of which each has something to commit."""

    def refuse_open(self, names: Sequence[str], nested: bool) -> None: ...

    @contextmanager
    def begin(
        self, grant: distlock.Grant, fenced_in: str | None, left: Callable[[], float]
    ) -> Iterator[bool]:
        yield True


def test_a_guard_tells_of_its_commit_and_of_no_rollback(alias: str) -> None:
    locks = connected(alias)
    terms = replace(locks.namespace.terms, where="shop.views.buy")
    assert guard.run(locks, ["product_1"], lambda: 1, Committing(), terms=terms) == 1
    with pytest.raises(ZeroDivisionError):
        guard.run(locks, ["product_1"], lambda: 1 // 0, Committing(), terms=terms)
    asyncio.run(guard.arun(locks, ["product_1"], partial(asyncio.sleep, 0), Committing(), terms=terms))
    labels = {"alias": alias, "where": "shop.views.buy"}
    assert value("distlock_commit_seconds_count", **labels) == 2
    assert value("distlock_held_seconds_count", **labels) == 3


def test_a_lifted_fence_is_counted(alias: str) -> None:
    with connected(alias).lock("product_1") as grant:
        assert grant.raise_fence("product_1", grant.fence.number + 1000)
        assert value("distlock_lifts_total", alias=alias) == 1


def test_a_caller_that_is_interrupted_right_after_the_grant_holds_nothing(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connected(alias)

    def interrupt(*about: object) -> distlock.Grant:
        raise KeyboardInterrupt

    monkeypatch.setattr(distlock.Lock, "_begin_block", interrupt)
    try:
        with locks.lock("product_1"):
            pytest.fail("it is not entered")
    except KeyboardInterrupt:
        pass
    eventually(lambda: value("distlock_holding", alias=alias) == 0, "the gauge is told")
    assert value("distlock_held_seconds_count", alias=alias) == 1


def test_what_interrupts_a_wait_is_no_time_out(alias: str) -> None:
    locks = connected(alias)

    async def cancelled() -> None:
        waiter = asyncio.create_task(locks.lock("product_1").aacquire())
        while not engine_of(locks).queues.waiting:
            await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    with locks.lock("product_1"):
        asyncio.run(cancelled())
    assert value("distlock_acquisitions_total", alias=alias, result="failed") == 1
    assert value("distlock_waiting", alias=alias) == value("distlock_holding", alias=alias) == 0
