from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, request, send_file, stream_with_context

import distlock
from distlock.errors import ConfigurationError, LockTimeout
from flask_distlock import DistLock, distributed_lock


def add_buy(
    app: Flask, rule: str = "/product/<int:id>", template: str = "product_<id>", **words: Any
) -> None:
    @app.route(rule, methods=["GET", "POST"])
    @distributed_lock(template, timeout=0, **words)
    def buy(id: Any) -> str:
        return "sold"


def test_a_view_that_gets_the_lock_answers_as_ever(app: Flask) -> None:
    add_buy(app)
    assert app.test_client().post("/product/1").text == "sold"


def test_a_view_that_does_not_get_it_is_answered_with_a_problem(app: Flask, locks: DistLock) -> None:
    add_buy(app)
    with app.app_context(), locks.lock("product_1"):
        response = app.test_client().post("/product/1")
    assert (response.status_code, response.content_type) == (423, "application/problem+json")
    assert response.get_json(force=True)["code"] == "lock_contended"
    assert (response.headers["Retry-After"], response.headers["Cache-Control"]) == ("1", "no-store")
    assert "product_1" not in response.text


def test_a_browser_gets_a_page(app: Flask, locks: DistLock) -> None:
    add_buy(app)
    with app.app_context(), locks.lock("product_1"):
        response = app.test_client().post("/product/1", headers={"Accept": "text/html,*/*;q=0.8"})
    assert response.content_type == "text/html; charset=utf-8"
    assert "<h1>Locked</h1>" in response.text


def test_the_name_is_shown_while_debugging(app: Flask, locks: DistLock) -> None:
    app.debug = True
    add_buy(app)
    with app.app_context(), locks.lock("product_1"):
        assert "product_1" in app.test_client().post("/product/1").get_json(force=True)["debug"]


def test_the_lock_is_held_in_the_whole_request_and_not_after_it(app: Flask, locks: DistLock) -> None:
    log = []

    @app.post("/product/<int:id>")
    @locks.distributed_lock("product_<id>")
    def buy(id: int) -> str:
        log.append(locks.lock("product_1").locked())
        return "sold"

    @app.after_request
    def after(response: Response) -> Response:
        log.append(locks.lock("product_1").locked())
        return response

    app.test_client().post("/product/1")
    assert log == [True, True]
    with app.app_context():
        assert not locks.lock("product_1").locked()


def test_every_method_is_locked_unless_told_otherwise(app: Flask, locks: DistLock) -> None:
    add_buy(app, methods=["POST"])
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.get("/product/1").status_code == 200
        assert client.post("/product/1").status_code == 423


@pytest.mark.attack("A09")
@pytest.mark.parametrize("spelling", ["01", "+1", "\uff11", "%201", "1.0", "x"])
def test_another_spelling_of_a_product_is_a_400(
    make_app: Callable[..., Flask], locks: DistLock, spelling: str
) -> None:
    # Nobody is asked: the lock service is down.
    app = make_app(DISTLOCK="redis://127.0.0.1:1")
    add_buy(app, "/product/<id>", "product_<int:id>")
    response = app.test_client().post(f"/product/{spelling}")
    assert (response.status_code, response.get_json(force=True)["code"]) == (400, "lock_name_invalid")


def test_text_in_a_bare_placeholder_says_what_to_write(app: Flask) -> None:
    add_buy(app, "/product/<id>")
    with pytest.raises(ConfigurationError, match="Write 'product_<int:id>'"):
        app.test_client().post("/product/1")


def test_a_lock_service_that_is_down_is_a_503(
    make_app: Callable[..., Flask], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(DISTLOCK="redis://127.0.0.1:1")
    add_buy(app)
    response = app.test_client().post("/product/1")
    assert (response.status_code, response.get_json(force=True)["code"]) == (503, "lock_backend_unavailable")
    (line,) = (record for record in caplog.records if "buy answered 503" in record.message)
    assert line.levelno == logging.WARNING


@pytest.mark.parametrize(
    ("error", "status"),
    [(distlock.LockLost("x"), 503), (distlock.TooManyWaiters("x"), 503), (distlock.LockTimeout("x"), 423)],
)
def test_lock_errors_from_inside_a_view_are_answered_alike(
    app: Flask, error: distlock.LockError, status: int
) -> None:
    def fail(id: int) -> str:
        raise error

    app.add_url_rule("/guarded/<int:id>", "guarded", distributed_lock("product_<id>")(fail))
    app.add_url_rule("/plain/<int:id>", "plain", fail)
    client = app.test_client()
    assert client.get("/guarded/1").status_code == client.get("/plain/1").status_code == status


def test_what_the_site_has_to_mend_stays_an_error(app: Flask) -> None:
    @app.get("/")
    def view() -> str:
        raise distlock.InvalidName("x")

    with pytest.raises(distlock.InvalidName):
        app.test_client().get("/")


def test_a_callable_gets_the_request_and_the_arguments_of_the_view(app: Flask, locks: DistLock) -> None:
    def by_shop(request: Any, id: int) -> str:
        return f"{request.headers['X-Shop']}_{id}"

    @app.post("/product/<int:id>")
    @distributed_lock(by_shop)
    def buy(id: int) -> str:
        return str(locks.lock("berlin_1").locked())

    assert app.test_client().post("/product/1", headers={"X-Shop": "berlin"}).text == "True"


def test_blueprints_and_decorators_in_between_are_served(app: Flask, locks: DistLock) -> None:
    def login_required(view):
        @functools.wraps(view)
        def wrapper(**kwargs):
            return view(**kwargs)

        return wrapper

    shop = Blueprint("shop", __name__)

    @shop.post("/product/<int:id>")
    @login_required
    @distributed_lock("product_<id>", timeout=0)
    @login_required
    def buy(id: int) -> str:
        return "sold"

    app.register_blueprint(shop, url_prefix="/shop")
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/shop/product/1").status_code == 423
    assert app.test_client().post("/shop/product/1").status_code == 200


@pytest.mark.attack("A25")
@pytest.mark.parametrize(
    "stream",
    [
        lambda: Response(iter(["sold"])),
        lambda: iter(["sold"]),
        lambda: (iter(["sold"]), 200),
    ],
    ids=["response", "iterator", "tuple"],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_streamed_response_is_warned_about(
    app: Flask, caplog: pytest.LogCaptureFixture, stream: Callable[[], Any], kind: str
) -> None:
    def export(id: int) -> Any:
        return stream()

    async def aexport(id: int) -> Any:
        return stream()

    view = distributed_lock("product_<id>")(export if kind == "sync" else aexport)
    app.add_url_rule("/product/<int:id>", view_func=view)
    with caplog.at_level(logging.WARNING, "distlock"):
        assert [app.test_client().get("/product/1").text for _ in range(3)] == ["sold"] * 3
    assert caplog.text.count("export returned a streamed response") == 1


def test_a_stream_that_is_made_under_the_lock_or_replaced_is_not_warned_about(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    @app.get("/in-context/<int:id>")
    @distributed_lock("product_<id>")
    def in_context(id: int) -> Any:
        return stream_with_context(part for part in ["sold"])

    @app.get("/replaced/<int:id>")
    @distributed_lock("product_<id>")
    def replaced(id: int) -> Any:
        return iter(["so", "ld"])

    @app.after_request
    def make_whole(response: Response) -> Response:
        if request.endpoint == "replaced":
            response.set_data(response.get_data())
        return response

    with caplog.at_level(logging.WARNING, "distlock"):
        assert app.test_client().get("/in-context/1").text == "sold"
        assert app.test_client().get("/replaced/1").text == "sold"
    assert caplog.text == ""


def test_without_a_server_a_streamed_response_is_warned_about(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    view = distributed_lock("product_<id>")(lambda id: iter(["sold"]))
    app.add_url_rule("/product/<int:id>", view_func=view, endpoint="export")
    with app.test_request_context("/product/1"), caplog.at_level(logging.WARNING, "distlock"):
        app.dispatch_request()
        app.dispatch_request()
    assert caplog.text.count("returned a streamed response") == 1


def test_a_file_is_no_code_that_would_run_later(
    app: Flask, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "invoice.txt").write_text("sold")

    @app.get("/product/<int:id>")
    @distributed_lock("product_<id>")
    def invoice(id: int) -> Response:
        return send_file(tmp_path / "invoice.txt")

    with app.test_client().get("/product/1") as response:
        assert response.text == "sold"
    assert caplog.text == ""


def test_a_callable_below_a_decorator_that_hides_the_view_says_what_to_write(app: Flask) -> None:
    def by_shop(request: Any, id: int) -> str: ...

    buy = distributed_lock(by_shop)(lambda id: "sold")
    app.add_url_rule("/<int:id>", "buy", lambda id: buy(id=id))
    with pytest.raises(TypeError) as caught:
        app.test_client().get("/1")
    assert "write @functools.wraps there" in caught.value.__notes__[0]


class TestPlainFunctions:
    @staticmethod
    def test_a_plain_function_raises_the_error(app: Flask, locks: DistLock) -> None:
        sell = distributed_lock("product_<id>", timeout=0)(lambda id: pytest.fail("ran"))
        with app.app_context(), locks.lock("product_1"), pytest.raises(LockTimeout):
            sell(1)

    @staticmethod
    def test_a_function_that_a_view_calls_raises_too_and_sees_its_own_arguments_only(
        app: Flask, locks: DistLock
    ) -> None:
        @distributed_lock("product_<id>", timeout=0)
        def sell(id: int) -> None:
            pytest.fail("ran")

        @app.post("/order/<int:id>")
        def order(id: int) -> str:
            with pytest.raises(LockTimeout, match="'product_7'"):
                sell(7)
            return str(request.view_args)

        with app.app_context(), locks.lock("product_7"):
            assert app.test_client().post("/order/3").text == "{'id': 3}"

    @staticmethod
    def test_methods_would_never_lock_it(app: Flask) -> None:
        with app.app_context(), pytest.raises(ConfigurationError, match="methods= would never lock"):
            distributed_lock("product_<id>", methods=["POST"])(lambda id: None)(1)

    @staticmethod
    def test_outside_of_an_app_it_says_what_to_write() -> None:
        with pytest.raises(ConfigurationError, match=r"with app\.app_context\(\)"):
            distributed_lock("product_<id>")(lambda id: None)(1)

    @staticmethod
    def test_two_threads_in_one_decorator_exclude_one_another(app: Flask) -> None:
        inside, kept_out = threading.Event(), threading.Event()

        @distributed_lock("product_<id>", timeout=0)
        def sell(id: int) -> None:
            inside.set()
            assert kept_out.wait(10)

        def first() -> None:
            with app.app_context():
                sell(1)

        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(10)
        with app.app_context(), pytest.raises(LockTimeout):
            sell(1)
        kept_out.set()
        thread.join()
