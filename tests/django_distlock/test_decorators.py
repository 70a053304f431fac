from __future__ import annotations

import functools
import io
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory
from django.urls import path, re_path
from django.views.decorators.http import require_POST
from rest_framework.request import Request

import distlock
from distlock.errors import ConfigurationError, LockTimeout
from distlock.testing.waits import engine_of
from distlock.web.names.converters import Malformed
from django_distlock import distributed_lock, locks
from tests.redis_server import eventually

Serve = Callable[..., Client]


@distributed_lock("product_<id>", timeout=0)
def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


@distributed_lock("product_<int:id>", timeout=0)
def buy_by_text(request: HttpRequest, id: str) -> HttpResponse:
    return HttpResponse("sold")


def test_a_view_that_gets_the_lock_answers_as_ever(serve: Serve) -> None:
    assert serve(buy).post("/product/1").content == b"sold"


def test_a_view_that_does_not_get_it_is_answered_with_a_problem(serve: Serve) -> None:
    client = serve(buy)
    with locks.lock("product_1"):
        response = client.post("/product/1")
    assert (response.status_code, response["Content-Type"]) == (423, "application/problem+json")
    assert response.json()["code"] == "lock_contended"
    assert (response["Retry-After"], response["Cache-Control"]) == ("1", "no-store")
    assert "product_1" not in response.content.decode()


@distributed_lock("card_<id>", timeout=0)
def charge(request: HttpRequest, id: int) -> int:
    return 5


@pytest.mark.parametrize("form", [HttpRequest, Request])
def test_a_function_that_a_view_calls_with_its_request_raises(serve: Serve, form: type[Any]) -> None:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        given = Request(request) if form is Request else request
        try:
            return HttpResponse(str(charge(given, id)))
        except LockTimeout:
            return HttpResponse("busy")

    client = serve(distributed_lock("product_<id>")(view))
    with locks.lock("card_1"):
        assert client.post("/product/1").content == b"busy"
    assert client.post("/product/1").content == b"5"


def test_a_view_that_a_test_calls_by_itself_is_answered() -> None:
    request = RequestFactory().post("/product/1")
    with locks.lock("product_1"):
        assert buy(request, 1).status_code == 423
    assert buy(request, 1).content == b"sold"


def test_a_view_inside_a_partial_is_a_view(serve: Serve) -> None:
    client = serve(functools.partial(buy))
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423


def test_methods_below_a_decorator_that_hides_the_view_say_what_to_write(serve: Serve) -> None:
    inner = distributed_lock("product_<id>", methods=["POST"])(lambda request, id: HttpResponse())
    client = serve(lambda request, id: inner(request, id))
    with pytest.raises(ConfigurationError, match=r"not called as a view.*write @functools\.wraps there"):
        client.post("/product/1")


def test_a_browser_gets_a_page(serve: Serve) -> None:
    client = serve(buy)
    with locks.lock("product_1"):
        response = client.post("/product/1", headers={"accept": "text/html,*/*;q=0.8"})
    assert response["Content-Type"] == "text/html; charset=utf-8"
    assert b"<h1>Locked</h1>" in response.content


def test_the_name_is_shown_while_debugging(serve: Serve, settings: Any) -> None:
    settings.DEBUG = True
    client = serve(buy)
    with locks.lock("product_1"):
        assert "product_1" in client.post("/product/1").json()["debug"]


def test_another_product_is_another_lock(serve: Serve) -> None:
    client = serve(buy)
    with locks.lock("product_1"):
        assert client.post("/product/2").status_code == 200


def test_the_status_can_be_chosen(serve: Serve, settings: Any) -> None:
    settings.DISTLOCK_CONTENDED_STATUS = 409
    client = serve(buy)
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 409


def test_too_many_waiters_are_turned_away_at_once(
    serve: Serve, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://full", "MAX_WAITERS": 1, "TIMEOUT": 60}}
    client = serve(distributed_lock("product_<id>")(buy.__wrapped__))
    statuses: list[int] = []
    waiter = threading.Thread(target=lambda: statuses.append(client.post("/product/1").status_code))
    with locks.lock("product_1"):
        waiter.start()
        eventually(lambda: engine_of(locks["default"]).queues.waiting == 1, "one request waits")
        response = client.post("/product/1")
    waiter.join()
    assert (response.status_code, response.json()["code"]) == (503, "lock_queue_full")
    assert statuses == [200]
    # Nor does Django write a line for each, or mail it to ADMINS.
    assert [record for record in caplog.records if record.name == "django.request"] == []


@pytest.mark.attack("A28")
def test_every_method_is_locked_unless_told_otherwise(serve: Serve) -> None:
    client = serve([
        path("all/<int:id>", buy),
        path("post/<int:id>", distributed_lock("product_<id>", timeout=0, methods=["POST"])(buy.__wrapped__)),
    ])  # fmt: skip
    with locks.lock("product_1"):
        assert client.get("/all/1").status_code == 423
        assert client.get("/post/1").status_code == 200
        assert client.post("/post/1").status_code == 423


@pytest.mark.attack("A09")
@pytest.mark.parametrize("spelling", ["01", "+1", "\uff11", "%201", "1.0", "x"])
def test_another_spelling_of_a_product_is_a_400(serve: Serve, spelling: str, settings: Any) -> None:
    # Nobody is asked: the lock service is down.
    settings.DISTLOCK = "redis://127.0.0.1:1"
    response = serve(buy_by_text, "product/<id>").post(f"/product/{spelling}")
    assert (response.status_code, response.json()["code"]) == (400, "lock_name_invalid")


def test_the_names_of_regular_expressions_are_strict_too(serve: Serve) -> None:
    client = serve([re_path(r"^product/(?P<id>\d+)$", buy_by_text), re_path(r"^p/(\d+)$", buy_by_text)])
    assert client.post("/product/1").status_code == client.post("/p/1").status_code == 200
    assert client.post("/product/01").status_code == client.post("/p/01").status_code == 400
    assert client.post("/product/\uff11").status_code == client.post("/p/\uff11").status_code == 400


def test_text_in_a_bare_placeholder_says_what_to_write(serve: Serve) -> None:
    with pytest.raises(ConfigurationError, match="Write 'product_<int:id>'"):
        serve(buy, "product/<id>").post("/product/1")


def test_a_lock_service_that_is_down_is_a_503(
    serve: Serve, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DISTLOCK = "redis://127.0.0.1:1"
    response = serve(buy).post("/product/1")
    assert (response.status_code, response.json()["code"]) == (503, "lock_backend_unavailable")
    (line,) = (record for record in caplog.records if "buy answered 503" in record.message)
    assert line.levelno == logging.WARNING
    assert int(response["Retry-After"]) >= 1


def test_a_lock_error_from_inside_the_view_is_answered_alike(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        with locks.lock("shop", timeout=0):
            return HttpResponse()

    client = serve(view)
    grant = locks.lock("shop").acquire()
    assert grant is not None
    assert client.post("/product/1").json()["code"] == "lock_contended"
    grant.release()


def test_an_invalid_name_in_the_views_own_code_is_the_sites_to_mend(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        locks.lock("")
        return HttpResponse()

    with pytest.raises(distlock.InvalidName):
        serve(view).post("/product/1")


def test_a_callable_gets_what_the_view_gets(serve: Serve) -> None:
    def by_shop(request: HttpRequest, id: int) -> list[str]:
        return [f"{request.headers['X-Shop']}_{id}", "shop"]

    @distributed_lock(by_shop)
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse(str(locks.lock("berlin_1").locked()))

    assert serve(view).post("/product/1", headers={"x-shop": "berlin"}).content == b"True"


def test_more_names_than_allowed_are_a_400(serve: Serve, settings: Any) -> None:
    settings.DISTLOCK = {"default": {"BACKEND": "memory", "MAX_NAMES": 2}}

    @distributed_lock(lambda request, id: ["a", "b", "c"])
    def view(request: HttpRequest, id: int) -> HttpResponse: ...

    assert serve(view).post("/product/1").status_code == 400


def test_a_guard_on_an_alias_that_does_not_exist_names_those_that_do(serve: Serve) -> None:
    view = distributed_lock("product_<id>", alias="othr")(buy.__wrapped__)
    with pytest.raises(ConfigurationError, match="no alias 'othr', only 'default'"):
        serve(view).post("/product/1")


def test_other_decorators_may_stand_on_both_sides(serve: Serve) -> None:
    view = require_POST(distributed_lock("product_<id>", timeout=0)(require_POST(buy.__wrapped__)))
    client = serve(view)
    assert client.get("/product/1").status_code == 405
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423


@pytest.mark.attack("A25")
def test_a_streaming_response_is_warned_about(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(iter([b"sold"]))

    with caplog.at_level(logging.WARNING, "distlock"):
        assert b"".join(serve(view).post("/product/1").streaming_content) == b"sold"
    assert "after the lock is released" in caplog.text


def test_a_file_is_not(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> FileResponse:
        return FileResponse(io.BytesIO(b"sold"))

    with caplog.at_level(logging.WARNING, "distlock"):
        assert b"".join(serve(view).post("/product/1").streaming_content) == b"sold"
    assert caplog.text == ""


class TestPlainFunctions:
    @staticmethod
    def test_a_plain_function_is_locked_on_its_own_arguments() -> None:
        @distributed_lock("product_<id>_of_<slug:shop>")
        def sell(id: int, shop: str = "berlin") -> bool:
            return locks.lock(f"product_{id}_of_{shop}").locked()

        assert sell(1)
        assert sell(id=1, shop="paris")

    @staticmethod
    def test_whoever_does_not_get_the_lock_gets_the_error() -> None:
        sell = distributed_lock("product_<id>", timeout=0)(lambda id: pytest.fail("ran"))
        with locks.lock("product_1"), pytest.raises(LockTimeout, match="'product_1'"):
            sell(1)

    @staticmethod
    def test_a_malformed_name_is_raised() -> None:
        with pytest.raises(Malformed):
            distributed_lock("product_<int:id>")(lambda id: None)("01")

    @staticmethod
    def test_methods_would_never_lock_it() -> None:
        with pytest.raises(ConfigurationError, match="methods= would never lock"):
            distributed_lock("product_<id>", methods=["POST"])(lambda id: None)(1)

    @staticmethod
    def test_two_threads_in_one_decorator_exclude_one_another() -> None:
        inside, kept_out = threading.Event(), threading.Event()

        @distributed_lock("product_<id>", timeout=0)
        def sell(id: int) -> None:
            inside.set()
            assert kept_out.wait(10)

        first = threading.Thread(target=sell, args=(1,))
        first.start()
        assert inside.wait(10)
        with pytest.raises(LockTimeout):
            sell(1)
        kept_out.set()
        first.join()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_decorator_that_hides_the_view_is_told_without_contention(serve: Serve, is_async: bool) -> None:
    if is_async:

        async def view(request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse("sold")

    else:

        def view(request: HttpRequest, id: int) -> HttpResponse:  # type: ignore[misc]
            return HttpResponse("sold")

    inner = distributed_lock("product_<id>")(view)

    def hiding(*args: Any, **kwargs: Any) -> Any:
        return async_to_sync(inner)(*args, **kwargs) if is_async else inner(*args, **kwargs)

    client = serve(hiding)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"hides it, so that requests.*write @functools\.wraps"):
            client.post("/product/1")


def test_a_helper_with_the_arguments_of_a_view_is_no_hidden_view(serve: Serve) -> None:
    helper = distributed_lock("product_<id>")(lambda request, id: HttpResponse("helped"))
    client = serve(lambda request, id: helper(request, id=id))
    assert client.post("/product/1").content == b"helped"


def test_a_method_below_an_object_that_is_no_function_is_locked(serve: Serve) -> None:
    class Consumer:
        @distributed_lock("product_<id>")
        @sync_to_async
        def buy(self, id: int) -> bool:
            return locks.lock(f"product_{id}").locked()

    assert async_to_sync(Consumer().buy)(id=1)
