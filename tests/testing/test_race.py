"""`race` shows an oversell that can happen, and each control is the same sale with a lock."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import Pool, StaticPool

import distlock
from distlock.errors import ConfigurationError
from distlock.testing import race

STOCK = 5


@pytest.fixture
def locks() -> Iterator[distlock.Locks]:
    locks = distlock.connect("memory://race", timeout=20)
    yield locks
    locks.close()


class Shop:
    def __init__(self) -> None:
        self.stock = STOCK

    def sell(self) -> str:
        if self.stock < 1:
            return "sold out"
        left = self.stock
        self.stock = left - 1
        return "sold"


def test_a_sale_that_is_over_in_a_moment_oversells() -> None:
    """Without being shaken the threads come one after the other, and not one race in twenty is lost."""
    lost = sum(race(Shop().sell).statuses["sold"] > STOCK for _ in range(20))
    # On a busy machine the threads of a race may come one after the other all the same.
    assert lost >= 10


def test_the_same_sale_under_a_lock_sells_the_stock(locks: distlock.Locks) -> None:
    shop = Shop()

    def sell() -> str:
        with locks.lock("product_1"):
            return shop.sell()

    assert race(sell).statuses == {"sold": STOCK, "sold out": 15}


def test_coroutines_are_run(locks: distlock.Locks) -> None:
    shop = Shop()

    async def sell() -> str:
        async with locks.lock("product_1"):
            await asyncio.sleep(0)
            return shop.sell()

    assert race(sell, times=10).statuses == {"sold": STOCK, "sold out": 5}


class Answer:
    def __init__(self, **said: object) -> None:
        vars(self).update(said)


def test_the_result_counts_all_and_prints_well() -> None:
    fine, task = Answer(status_code=200, status="200 OK"), Answer(status="SUCCESS")
    answers: list[object] = [fine, Answer(status_code=HTTPStatus(409)), task, None, "sold", ("sold", [1])]
    answers += [fine, [1], Answer(), Answer(), KeyError("stock")]

    def take() -> object:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    ended = race(take, times=11)
    counted = {200: 2, 409: 1, "SUCCESS": 1, None: 1, "sold": 1, "tuple": 1, "list": 1, "Answer": 2}
    assert ended.statuses == {**counted, "KeyError": 1}
    assert len(ended.answers) == 10
    assert [repr(error) for error in ended.errors] == ["KeyError('stock')"]
    shown = repr(ended)
    assert shown.startswith("<Race of 11 calls in ")
    assert " s: {200: 2, 409: 1, 'Answer': 2, 'KeyError': 1, " in shown
    assert shown.endswith("}; first error: KeyError('stock')>")


def test_all_start_before_one_ends() -> None:
    """Each waits for all others: calls that came one after the other would never end."""
    together = threading.Barrier(8)
    assert race(lambda: together.wait(30) >= 0, times=8).statuses == {True: 8}


def test_calls_that_hang_are_told_with_their_place() -> None:
    end = threading.Event()

    def hangs_here() -> None:
        end.wait(60)

    try:
        with pytest.raises(
            TimeoutError, match=r"3 of 3 calls .* after 0.5 seconds.*test_race.py:\d+ in hangs"
        ):
            race(hangs_here, times=3, within=0.5)
    finally:
        end.set()
    # Other tests' threads may end meanwhile.
    ours = [thread for thread in threading.enumerate() if thread.name == "distlock-race"]
    for thread in ours:
        thread.join(30)
    assert not any(thread.is_alive() for thread in ours)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"times": 1}, "2 calls or more"),
        ({"within": 0}, "more than 0 seconds"),
        ({"processes": 0}, "from 1 to 20"),
        ({"times": 2, "processes": 3}, "from 1 to 2"),
        ({"methods": "POST"}, "no argument 'methods'"),
        ({"method": "POST"}, "method= belongs to an address"),
    ],
)
def test_what_is_no_race_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        race(Shop().sell, **words)


@pytest.mark.parametrize("pool", [StaticPool, None])
def test_a_database_of_sqlalchemy_in_memory_is_refused(pool: type[Pool] | None) -> None:
    """Flask-SQLAlchemy has the first; SQLAlchemy itself another one, with a database for each thread."""
    engine = create_engine("sqlite://", poolclass=pool, connect_args={"check_same_thread": False})

    def ask() -> None:
        with engine.connect():
            pass

    with pytest.raises(ConfigurationError, match="used a SQLite database in memory, by SQLAlchemy"):
        race(ask, times=2)
    ask()
    assert race(lambda: None, times=2).statuses == {None: 2}
    assert not engine.dispatch.engine_connect
    engine.dispose()


def test_a_debugger_keeps_its_place() -> None:
    """It traces the thread, and finds itself there when the call is over."""
    seen: list[object] = []

    def tracer(*arguments: object) -> None: ...

    def traced(call: Callable[[], str]) -> str:
        result = call()
        seen.append(sys.gettrace())
        return result

    threading.settrace(tracer)
    try:
        race(lambda: traced(Shop().sell), times=2)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert seen == [tracer, tracer]
