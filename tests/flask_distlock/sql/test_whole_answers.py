"""A view's lock is kept until its request is over: what runs under it, and what outlives it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Response, abort, stream_with_context

import distlock
from distlock.errors import ConfigurationError
from flask_distlock import distributed_lock
from tests.flask_distlock.sql.session_shop import Call, Shop, after, held

STREAMS: dict[str, Callable[[Iterator[str]], Any]] = {
    "as it is": stream_with_context,
    "in a generator": lambda content: (chunk for chunk in stream_with_context(content)),
    "in an iterator": lambda content: map(str.upper, stream_with_context(content)),
}


def test_an_error_handler_and_teardowns_are_under_the_lock(shop: Shop) -> None:
    @shop.app.errorhandler(ZeroDivisionError)
    def mend(error: ZeroDivisionError) -> str:
        shop.note("handler")
        return "mended"

    def view() -> str:
        raise ZeroDivisionError

    after(shop, lambda: shop.note("hook"))
    shop.app.teardown_request(lambda error: shop.note("teardown"))
    shop.serve(view)
    assert shop.post().text == "mended"
    assert shop.log == ["handler+", "hook+", "teardown+"]
    assert not held(shop)


@pytest.mark.parametrize("status", [302, 409])
def test_an_answer_that_the_view_raises_is_made_under_the_lock(shop: Shop, status: int) -> None:
    after(shop, lambda: shop.note("hook"))
    shop.serve(lambda: abort(Response(status=status)))
    assert shop.post().status_code == status
    assert shop.log == ["hook+"]


def test_an_error_that_nobody_handles_releases_the_lock(shop: Shop) -> None:
    def view() -> str:
        raise ZeroDivisionError

    shop.app.teardown_request(lambda error: shop.note("teardown"))
    shop.serve(view)
    with pytest.raises(ZeroDivisionError):
        shop.post()
    assert (shop.log, held(shop)) == (["teardown+"], False)


def test_a_teardown_that_fails_releases_the_lock(shop: Shop) -> None:
    def fail(error: BaseException | None) -> None:
        raise ZeroDivisionError

    shop.app.teardown_request(fail)
    shop.serve(lambda: "sold")
    with pytest.raises(ZeroDivisionError):
        shop.post()
    assert not held(shop)


def test_an_app_context_in_the_view_ends_nothing(shop: Shop) -> None:
    def view() -> str:
        with shop.app.app_context():
            shop.product()
        shop.note("view")
        return "sold"

    after(shop, lambda: shop.note("hook"))
    shop.serve(view)
    assert shop.post().text == "sold"
    assert shop.log == ["view+", "hook+"]


@pytest.mark.parametrize("again", ["guard", "block"])
def test_a_teardown_enters_the_lock_again(shop: Shop, again: str) -> None:
    guarded = distributed_lock("product_1", timeout=0)(lambda: shop.note("inside"))

    @shop.app.teardown_request
    def teardown(error: BaseException | None) -> None:
        if again == "guard":
            guarded()
        else:
            with shop.locks.lock("product_1", timeout=0):
                shop.note("inside")
        shop.note("teardown")

    shop.serve(lambda: "sold")
    assert shop.post().text == "sold"
    assert (shop.log, held(shop)) == (["inside+", "teardown+"], False)


def test_a_hook_that_asks_for_more_than_is_kept_is_told(shop: Shop) -> None:
    def hook() -> None:
        with pytest.raises(ConfigurationError, match=r"until it is answered.*take all names at once"):
            shop.locks.lock("product_1", "z", timeout=0).acquire()
        shop.note("hook")

    after(shop, hook)
    shop.serve(lambda: "sold")
    assert shop.post().text == "sold"
    assert shop.log == ["hook+"]


def plain_client(shop: Shop) -> distlock.Locks:
    return distlock.connect(shop.app.config["DISTLOCK"], timeout=2)


@pytest.mark.parametrize("where", ["hook", "teardown"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_plain_client_is_refused_what_the_request_keeps(shop: Shop, where: str, commits: bool) -> None:
    told: list[str] = []

    def view() -> str:
        shop.sell()
        if commits:
            shop.db.session.commit()
        return "sold"

    with contextlib.closing(plain_client(shop)) as plain:

        def ask() -> None:
            for lock in (plain.lock("product_1"), plain.rlock("product_1"), plain.lock("product_1", "z")):
                with pytest.raises(ConfigurationError) as refused, lock:
                    pass
                told.append(str(refused.value))
            with plain.lock("product_2"):
                shop.note("other")
            shop.db.session.commit()

        if where == "hook":
            after(shop, ask)
        else:
            shop.app.teardown_request(lambda error: ask())
        shop.serve(view)
        assert shop.post().text == "sold"
    assert ["leave this lock out" in one and "'with locks.lock(…)'" in one for one in told] == [True] * 3
    assert "other+" in shop.log


def test_a_plain_client_reads_what_the_request_keeps_to_read(shop: Shop) -> None:
    with contextlib.closing(plain_client(shop)) as plain:

        def read() -> None:
            with plain.read_lock("product_1"):
                shop.note("read")

        after(shop, read)
        view = distributed_lock("product_1", mode="shared", methods=["POST"])(lambda: "sold")
        shop.app.add_url_rule("/", "view", view, methods=["POST"])
        assert shop.post().text == "sold"
    assert shop.log == ["read+"]


@pytest.mark.attack("A25")
@pytest.mark.parametrize("wrap", STREAMS.values(), ids=STREAMS)
def test_a_stream_in_its_context_is_made_under_the_lock(shop: Shop, wrap: Callable[..., Any]) -> None:
    def view() -> Response:
        def content() -> Iterator[str]:
            shop.note("first")
            yield "SO"
            shop.note("last")
            yield "LD"

        return Response(wrap(content()))

    shop.app.teardown_request(lambda error: shop.note("teardown"))
    shop.serve(view)
    assert shop.post().text == "SOLD"
    assert shop.log == ["teardown+", "first+", "last+", "teardown+"]
    assert not held(shop)


def test_a_stream_whose_lock_is_lost_before_its_last_chunk_is_an_error(shop: Shop) -> None:
    def view() -> Response:
        def content() -> Iterator[str]:
            yield "so"
            shop.locks.close()
            yield "ld"
            pytest.fail("It went on without its lock.")

        return Response(stream_with_context(content()))

    shop.serve(view)
    with pytest.raises(ConfigurationError, match=r"stream_with_context\(\).*MAX_HOLD.*Return it whole"):
        shop.post()
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False
    assert shop.post().status_code == 500


@pytest.mark.parametrize("status", [200, 409])
def test_a_stream_that_is_slower_than_max_hold_is_an_error(shop: Shop, status: int) -> None:
    def view() -> Response:
        def content() -> Iterator[str]:
            ends = time.monotonic() + 30
            try:
                while time.monotonic() < ends:
                    yield "sold"
                    time.sleep(0.01)
            finally:
                shop.note("stopped")

        return Response(stream_with_context(content()), status)

    guarded = distributed_lock("product_1", max_hold=0.2)(view)
    shop.app.add_url_rule("/", "view", guarded, methods=["POST"])
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False
    assert shop.post().status_code == 500
    assert (shop.log, held(shop)) == (["stopped+"], False)


def test_a_stream_that_fails_is_answered_as_an_error(shop: Shop) -> None:
    def view() -> Response:
        def content() -> Iterator[str]:
            yield "so"
            raise ZeroDivisionError

        return Response(stream_with_context(content()))

    shop.serve(view)
    with pytest.raises(ZeroDivisionError):
        shop.post()
    assert not held(shop)
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False
    assert shop.post().status_code == 500


def test_what_runs_when_the_response_is_closed_is_told(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    def view() -> Response:
        response = Response("sold")
        response.call_on_close(lambda: shop.log.append("locked" if held(shop) else "free"))
        return response

    shop.serve(view)
    with caplog.at_level(logging.WARNING):
        shop.post().close()
        shop.post().close()
    assert shop.log == ["free", "free"]
    assert caplog.text.count("view or a hook has used response.call_on_close()") == 1


@pytest.mark.parametrize("where", ["hook", "teardown"])
def test_what_was_committed_before_its_lock_was_lost_is_answered(
    shop: Shop, sell: Call, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def view() -> str:
        sell()
        shop.db.session.commit()
        return "sold"

    def commit() -> None:
        shop.locks.close()
        shop.product().stock = 1
        shop.db.session.commit()

    if where == "hook":
        after(shop, commit)
    else:
        shop.app.teardown_request(lambda error: commit())
    shop.serve(view)
    assert shop.post().text == "sold"
    assert shop.stock() == 9
    assert "could not commit, because its lock was lost" in caplog.text


@pytest.mark.parametrize("where", ["hook", "teardown"])
def test_what_was_not_committed_before_its_lock_was_lost_is_rolled_back(
    shop: Shop, sell: Call, where: str
) -> None:
    def commit() -> None:
        shop.locks.close()
        shop.db.session.commit()

    if where == "hook":
        after(shop, commit)
    else:
        shop.app.teardown_request(lambda error: commit())
    shop.serve(sell)
    answer = shop.post()
    assert (answer.status_code, answer.json["code"]) == (503, "lock_lost")
    assert shop.stock() == 10


def test_without_a_server_the_lock_ends_with_the_view(shop: Shop) -> None:
    shop.serve(lambda: "sold")
    with shop.app.test_request_context("/", method="POST"):
        shop.app.preprocess_request()
        assert shop.app.dispatch_request() == "sold"
        assert not shop.locks.lock("product_1").locked()
