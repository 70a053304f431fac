"""Guards inside guards that take names in opposite orders: nobody waits in a ring."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path
from flask import Flask

import distlock
import django_distlock
import flask_distlock
from distlock.errors import LockTimeout
from distlock.web import guard, nested_deadlocks
from tests.web.nested_call import NoTransactions

numbers = itertools.count()

#: Seconds; on a ring that nobody ends, all four requests below take it, or twice as long.
TIMEOUT = 30.0

LINE = "with the templates of 'a' and 'b': @distributed_lock(…, …)"


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_deadlocks, "_logged", set())


def nested(decorate: Any, answer: Any, meet: Callable[[], None]) -> Iterator[tuple[str, Any]]:
    """Two views that take ``a`` and ``b``, each in its order."""
    for outer, inner in ("ab", "ba"):

        @decorate(inner)
        def second() -> None: ...

        @decorate(outer)
        def view(*request: Any, second: Any = second) -> Any:
            meet()
            second()
            return answer()

        yield outer + inner, view


@contextmanager
def django_site(meet: Callable[[], None]) -> Iterator[Callable[[str], int]]:
    views = nested(django_distlock.distributed_lock, HttpResponse, meet)
    urls = type("Urls", (), {"urlpatterns": [path(order, view) for order, view in views]})
    setting = {"LOCATION": f"memory://nesting{next(numbers)}", "TIMEOUT": TIMEOUT}
    with override_settings(DISTLOCK={"default": setting}, ROOT_URLCONF=urls):
        yield lambda order: Client().get(f"/{order}").status_code
        django_distlock.locks.close_all()


@contextmanager
def flask_site(meet: Callable[[], None]) -> Iterator[Callable[[str], int]]:
    app = Flask(__name__)
    setting = {"LOCATION": f"memory://nesting{next(numbers)}", "TIMEOUT": TIMEOUT}
    app.config["DISTLOCK"] = {"default": setting}
    locks = flask_distlock.DistLock(app)
    for order, view in nested(locks.distributed_lock, lambda: "done", meet):
        app.add_url_rule(f"/{order}", order, view)
    yield lambda order: app.test_client().get(f"/{order}").status_code
    with app.app_context():
        locks.close()


class Meeting:
    """The first two to come go on together: each holds its first lock then."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=60)
        self._first = threading.Semaphore(2)

    def __call__(self) -> None:
        if self._first.acquire(blocking=False):
            self._barrier.wait()


@pytest.mark.attack("A26")
@pytest.mark.parametrize("site", [django_site, flask_site])
def test_of_requests_in_opposite_orders_some_get_through_and_the_others_hear_at_once(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with site(Meeting()) as get, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(get, ["ab", "ba", "ab", "ba"]))
        assert set(answers) <= {200, 423}
        assert 200 in answers
        # There is no lock behind: all orders can be had, one after the other.
        assert [get("ab"), get("ba")] == [200, 200]
    [warning] = [one.getMessage() for one in caplog.records if "stands inside one on" in one.getMessage()]
    assert LINE in warning


def by_with(lock: distlock.Lock) -> str:
    with lock:
        return "done"


def by_acquire(lock: distlock.Lock) -> str:
    grant = lock.acquire()
    if grant is None:
        return "None"
    grant.release()
    return "done"


Take = Callable[[distlock.Lock], str]


@contextmanager
def django_blocks(meet: Callable[[], None], take: Take = by_with) -> Iterator[Callable[[str], str]]:
    def call(order: str) -> str:
        def body() -> str:
            meet()
            return take(django_distlock.locks.lock(order[1]))

        return str(django_distlock.distributed_lock(order[0])(body)())

    with override_settings(
        DISTLOCK={"default": {"LOCATION": f"memory://nesting{next(numbers)}", "TIMEOUT": TIMEOUT}}
    ):
        yield call
        django_distlock.locks.close_all()


@contextmanager
def flask_blocks(meet: Callable[[], None], take: Take = by_with) -> Iterator[Callable[[str], str]]:
    app = Flask(__name__)
    app.config["DISTLOCK"] = {"default": {"LOCATION": f"memory://nesting{next(numbers)}", "TIMEOUT": TIMEOUT}}
    locks = flask_distlock.DistLock(app)

    def call(order: str) -> str:
        def body() -> str:
            meet()
            return take(locks.lock(order[1]))

        with app.app_context():
            return str(locks.distributed_lock(order[0])(body)())

    yield call
    with app.app_context():
        locks.close()


@pytest.mark.parametrize("site", [django_blocks, flask_blocks])
def test_of_blocks_inside_guards_in_opposite_orders_one_gets_through_and_the_other_hears_at_once(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(order: str) -> str:
        try:
            return call(order)
        except LockTimeout as error:
            return str(error)

    with site(Meeting()) as call, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(answer, ["ab", "ba"]))
        assert "done" in answers
        assert any("both would wait" in one and one.endswith(LINE) for one in answers)
        # There is no lock behind.
        assert [answer("ab"), answer("ba")] == ["done", "done"]
    [warning] = [one.getMessage() for one in caplog.records if "stands inside one on" in one.getMessage()]
    assert LINE in warning


@pytest.mark.parametrize("site", [django_blocks, flask_blocks])
def test_an_acquire_that_closes_a_ring_gives_none_at_once(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with site(Meeting(), by_acquire) as call, ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(call, ["ab", "ba"])) == ["None", "done"]
    [told] = [one.getMessage() for one in caplog.records if "both would wait" in one.getMessage()]
    assert told.endswith(LINE)


@pytest.fixture
def client() -> Iterator[distlock.Locks]:
    client = distlock.connect(f"memory://nesting{next(numbers)}", timeout=TIMEOUT)
    yield client
    client.close()


def run(client: distlock.Locks, name: str, body: Callable[[], Any]) -> Any:
    return guard.run(client, [name], body, NoTransactions())


@pytest.mark.attack("A26")
@pytest.mark.fault("F41")
def test_between_processes_who_asks_against_the_order_gives_way(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def start(outer: str, inner: str) -> subprocess.Popen[str]:
            command = [
                sys.executable,
                "-m",
                "tests.web.nested_call",
                f"file://{tmp_path}/locks",
                outer,
                inner,
            ]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes))
            stack.callback(process.kill)
            return process

        both = in_order, against = start("a", "b"), start("b", "a")
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "in\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert in_order.communicate(timeout=60)[0] == "done\n"
        told, answer = against.communicate(timeout=60)[0].splitlines()
    assert told.startswith("told A guard on 'a' stands inside one on 'b'.")
    assert told.endswith(LINE)
    assert "after 3 seconds" in answer
    assert answer.endswith(LINE)


def test_who_closes_a_ring_of_three_is_refused(client: distlock.Locks) -> None:
    meet = threading.Barrier(3, timeout=60)

    def call(outer: str, inner: str) -> str:
        def body() -> Any:
            meet.wait()
            return run(client, inner, lambda: "done")

        try:
            return str(run(client, outer, body))
        except LockTimeout as error:
            return str(error)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(call, "abc", "bca"))
    assert sorted(answers)[-2:] == ["done", "done"]
    assert [answer for answer in answers if "both would wait" in answer]


def test_guards_in_the_order_are_told_nothing(
    client: distlock.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(client, "a", lambda: run(client, "b", lambda: run(client, "c", lambda: "done"))) == "done"
    assert not caplog.records


def test_names_that_differ_in_their_numbers_are_told_once(
    client: distlock.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        run(client, f"user_{number}", lambda number=number: run(client, f"product_{number}", lambda: None))
    assert len(caplog.records) == 1
    assert "with the templates of 'product_0' and 'user_0'" in caplog.text


def test_the_last_warning_says_that_no_more_follow(
    client: distlock.Locks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested_deadlocks, "_MOST", 2)
    for name in "abc":
        run(client, f"user_{name}", lambda name=name: run(client, f"product_{name}", lambda: None))
    assert [record.getMessage().split(" on ")[0] for record in caplog.records] == [
        "A guard",
        "A guard",
        "That was warning 2 of nested guards. This process logs no more of them.",
    ]


def test_tasks_in_opposite_orders_do_not_wait_for_each_other(
    client: distlock.Locks,
) -> None:

    async def main() -> list[str]:
        meet = asyncio.Barrier(2)

        async def call(outer: str, inner: str) -> str:
            async def done() -> str:
                return "done"

            async def body() -> str:
                await meet.wait()
                return await guard.arun(client, [inner], done, NoTransactions())

            try:
                return await guard.arun(client, [outer], body, NoTransactions())
            except LockTimeout as error:
                return str(error)

        return list(await asyncio.gather(call("a", "b"), call("b", "a")))

    answers = asyncio.run(main())
    assert "done" in answers
    assert any("both would wait" in answer for answer in answers)
