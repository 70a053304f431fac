from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from flask import Flask
from flask.views import MethodView

from distlock import current_grant
from distlock.errors import ConfigurationError, LockTimeout, NotHeld
from flask_distlock import DistLock, distributed_lock


def test_a_decorated_coroutine_function_is_one() -> None:
    @distributed_lock("product_<id>")
    async def buy(id: int) -> str: ...

    assert inspect.iscoroutinefunction(buy)


@pytest.fixture
def names_in(app: Flask) -> Callable[[Any], list[str]]:
    """What an async view finds held, if it is served below a decorator or in a class."""

    def names_in(decorate: Any) -> list[str]:
        async def view(id: int) -> list[str]:
            return list(current_grant().names)

        app.add_url_rule("/<int:id>", "buy", decorate(view), methods=["POST"])
        names: list[str] = app.test_client().post("/1").get_json()
        return names

    return names_in


def in_a_class(view: Any) -> Any:
    class Buy(MethodView):
        async def post(self, id: int) -> Any:
            return await view(id)

    return distributed_lock("product_<id>")(Buy).as_view("buy")


def test_the_grant_is_there_in_the_coroutine(names_in: Callable[[Any], list[str]]) -> None:
    assert names_in(distributed_lock("product_<id>")) == ["product_1"]


def test_the_grant_goes_into_the_coroutine_of_a_class(names_in: Callable[[Any], list[str]]) -> None:
    assert names_in(in_a_class) == ["product_1"]


def test_the_grant_of_a_rule_goes_through_a_decorator_that_bridges(
    app: Flask, names_in: Callable[[Any], list[str]]
) -> None:
    app.config["DISTLOCK_RULES"] = [{"route": "buy", "lock": "product_<id>"}]
    assert names_in(lambda view: lambda id: app.ensure_sync(view)(id)) == ["product_1"]


def test_a_guard_in_the_coroutine_re_enters_what_the_thread_holds(app: Flask) -> None:
    sell = distributed_lock("product_<id>", timeout=0)(lambda id: "sold")

    @distributed_lock("product_<id>", timeout=0)
    class Buy(MethodView):
        async def post(self, id: int) -> str:
            return sell(id)

    app.add_url_rule("/<int:id>", view_func=Buy.as_view("buy"))
    assert app.test_client().post("/1").text == "sold"


def test_a_task_that_the_view_starts_does_not_own_its_lock(app: Flask) -> None:
    async def look() -> str:
        with pytest.raises(NotHeld):
            current_grant()
        return "not mine"

    @distributed_lock("product_<id>")
    class Buy(MethodView):
        async def post(self, id: int) -> str:
            (answer,) = await asyncio.gather(look())
            return answer

    app.add_url_rule("/<int:id>", view_func=Buy.as_view("buy"))
    assert app.test_client().post("/1").text == "not mine"


def test_nothing_stays_held_in_the_thread(app: Flask) -> None:
    async def buy(id: int) -> str:
        return "sold"

    app.add_url_rule("/<int:id>", view_func=in_a_class(buy))
    held: list[tuple[str, ...]] = []
    app.after_request(lambda response: held.append(current_grant().names) or response)
    assert app.test_client().post("/1").text == "sold"
    # Until the request is over it has the lock, in whatever thread its view ran.
    assert held == [("product_1",)]
    with pytest.raises(NotHeld):
        current_grant()


def test_two_async_requests_exclude_one_another(app: Flask) -> None:
    inside, kept_out = threading.Event(), threading.Event()

    @app.post("/<int:id>")
    @distributed_lock("product_<id>", timeout=0)
    async def buy(id: int) -> str:
        inside.set()
        assert await asyncio.to_thread(kept_out.wait, 10)
        return "sold"

    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(app.test_client().post("/1").status_code))
    thread.start()
    assert inside.wait(10)
    assert app.test_client().post("/1").status_code == 423
    assert app.test_client().post("/1").status_code == 423
    kept_out.set()
    thread.join()
    assert first == [200]


@pytest.mark.parametrize("bridge", [lambda work: sync_to_async(work)(), asyncio.to_thread])
def test_a_function_in_a_thread_that_takes_the_views_own_lock_gets_an_error_at_once(
    app: Flask, locks: DistLock, bridge: Any
) -> None:
    @distributed_lock("product_<id>")
    def sell(id: int) -> None:
        pytest.fail("ran")

    def block() -> None:
        locks.lock("product_1").__enter__()

    @app.post("/<int:id>")
    @distributed_lock("product_<id>")
    async def buy(id: int) -> str:
        for work in (lambda: sell(1), block):
            with pytest.raises(ConfigurationError, match="this very"):
                await bridge(work)
        return "told"

    assert app.test_client().post("/1").text == "told"


class TestPlainFunctions:
    @staticmethod
    def test_it_raises(app: Flask, locks: DistLock) -> None:
        @distributed_lock("product_<id>", timeout=0)
        async def sell(id: int) -> None:
            pytest.fail("ran")

        with app.app_context(), locks.lock("product_1"), pytest.raises(LockTimeout):
            asyncio.run(sell(1))

    @staticmethod
    def test_it_runs_under_the_lock(app: Flask, locks: DistLock) -> None:
        @distributed_lock("product_<id>")
        async def sell(id: int) -> bool:
            return locks.lock("product_1").locked()

        with app.app_context():
            assert asyncio.run(sell(1))
            assert not locks.lock("product_1").locked()

    @staticmethod
    def test_siblings_exclude_one_another(app: Flask) -> None:
        running = 0

        @distributed_lock("product_<id>")
        async def sell(id: int) -> int:
            nonlocal running
            running += 1
            found = running
            await asyncio.sleep(0)
            running -= 1
            return found

        async def rush() -> list[int]:
            return await asyncio.gather(*(sell(1) for _ in range(5)))

        with app.app_context():
            assert asyncio.run(rush()) == [1] * 5

    @staticmethod
    def test_methods_would_never_lock_it(app: Flask) -> None:
        @distributed_lock("product_<id>", methods=["POST"])
        async def sell(id: int) -> None: ...

        with app.app_context(), pytest.raises(ConfigurationError, match="methods= would never lock"):
            asyncio.run(sell(1))

    @staticmethod
    def test_an_async_hook_may_be_one(app: Flask, locks: DistLock) -> None:
        @app.before_request
        @distributed_lock("product_1")
        async def hook() -> str:
            return str(locks.lock("product_1").locked())

        assert app.test_client().get("/").text == "True"
