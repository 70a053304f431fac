"""The proof that the harness sees: each flawed lock is caught every time, by a test of its name."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from demo_shop.museum.exhibits import EXHIBITS
from demo_shop.museum.redis_locks import RedisStep1, RedisStep2, RedisStep3, RedisStep4, RedisStep5
from loadtest.museum import scenes
from loadtest.museum.instances import InstanceMaker, RedisLock, on_redis
from loadtest.museum.scenes import TRIALS, Trial
from tests.museum.conftest import Services


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_the_flawed_lock_is_caught(trial: Trial, services: Services) -> None:
    """A scene on Redis mostly waits: three benches stand beside each other, with names of their own."""
    service = services(trial.service)
    with ThreadPoolExecutor(3 if trial.service == "redis" else 1) as pool:
        caught = [pool.submit(trial.try_exhibit, service) for _ in range(3)]
    assert [one.result() for one in caught] == [trial.damage] * 3
    assert trial.damage > 0


@pytest.mark.parametrize(
    "trial", {trial.scene: trial for trial in TRIALS}.values(), ids=lambda trial: trial.scene.__name__
)
def test_distlock_passes_the_same_run(trial: Trial, services: Services) -> None:
    assert trial.try_distlock(services(trial.service)) == 0


@pytest.mark.parametrize(
    ("scene", "step"),
    [
        (scenes.everybody_at_once, RedisStep1),
        (scenes.stranger_releases, RedisStep2),
        (scenes.thinks_too_long, RedisStep3),
        (scenes.slow_answer_at_release, RedisStep4),
        (scenes.slow_answer_at_renewal, RedisStep4),
        (scenes.nested_call, RedisStep5),
    ],
    ids=lambda part: part.__name__,
)
def test_a_later_step_mends_the_fault(
    scene: Callable[[InstanceMaker], int], step: RedisLock, services: Services
) -> None:
    """So each scene breaks a lock by its own fault, and not by being a rough place."""
    with on_redis(step)(services("redis")) as bench:
        assert scene(bench) == 0


def test_no_exhibit_stands_there_unbroken() -> None:
    assert {trial.exhibit for trial in TRIALS} == set(EXHIBITS)
