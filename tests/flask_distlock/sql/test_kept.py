"""A lock that a request keeps: what enters it again, and what ends it."""

from __future__ import annotations

import contextvars
import gc
import logging
import threading
from typing import Any

import pytest
from flask import Blueprint, Response, stream_with_context
from flask.views import MethodView
from sqlalchemy.orm import Session

from distlock import current_grant
from distlock.errors import ConfigurationError, NotHeld
from flask_distlock import distributed_lock
from tests.flask_distlock.sql.session_shop import Call, Shop, after, commit_and_note, held


def test_a_hook_after_a_view_that_has_only_read_is_under_its_lock(shop: Shop) -> None:
    after(shop, lambda: shop.note("hook"))
    shop.serve(lambda: str(shop.product().stock))
    assert shop.post().text == "10"
    assert shop.log == ["hook+"]
    assert not held(shop)


def test_the_lock_goes_with_the_request_and_not_with_the_transaction(shop: Shop, sell: Call) -> None:
    after(shop, lambda: commit_and_note(shop))
    after(shop, lambda: shop.note("before"))
    shop.serve(sell)
    assert shop.post().text == "sold"
    assert shop.log == ["before+", "commit+", "after+"]
    assert not held(shop)


def test_a_transaction_that_the_view_began_after_its_commit_keeps_the_lock(shop: Shop) -> None:
    def view() -> str:
        for _ in range(2):
            shop.product().stock -= 1
            if shop.stock_now() == 9:
                shop.db.session.commit()
        return "sold"

    shop.stock_now = lambda: shop.product().stock  # type: ignore[attr-defined]
    after(shop, lambda: commit_and_note(shop))
    shop.serve(view)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "commit+", "after+"], 8)


def test_the_grant_is_current_in_hooks_and_teardowns(shop: Shop, sell: Call) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append(current_grant().names)
        shop.db.session.commit()
        seen.append(current_grant().names)

    after(shop, look)
    shop.app.teardown_request(lambda error: seen.append(current_grant().names))
    shop.serve(sell)
    assert shop.post().text == "sold"
    assert seen == [("product_1",)] * 3
    with shop.app.app_context(), pytest.raises(NotHeld):
        current_grant()


@pytest.mark.parametrize("again", ["guard", "block", "rlock"])
def test_a_hook_enters_the_kept_lock_again(shop: Shop, sell: Call, again: str) -> None:
    def inside() -> None:
        shop.db.session.commit()
        shop.note("inside")

    @distributed_lock("product_1", timeout=0)
    def guarded() -> None:
        inside()

    def hook() -> None:
        if again == "guard":
            guarded()
        else:
            with getattr(shop.locks, "rlock" if again == "rlock" else "lock")("product_1", timeout=0):
                inside()
        shop.note("after")

    after(shop, hook)
    shop.serve(sell)
    assert shop.post().text == "sold"
    assert shop.log == ["commit+", "inside+", "after+"]


def test_what_is_kept_to_read_is_no_lock_to_write_and_no_permit(shop: Shop, sell: Call) -> None:
    modes: list[str] = []

    def hook() -> None:
        with shop.locks.read_lock("product_1") as grant:
            modes.append(grant.mode)
        with shop.locks.semaphore("product_1", limit=1) as grant:
            modes.append(grant.mode)
        with pytest.raises(ConfigurationError, match="'product_1' can't be taken to write"):
            shop.locks.lock("product_1", timeout=0).acquire()
        with pytest.raises(ConfigurationError, match="'product_1' can't be taken to write"):
            distributed_lock("product_1", timeout=0)(sell)()
        shop.db.session.commit()

    after(shop, hook)
    view = distributed_lock("product_1", mode="shared", methods=["POST"])(sell)
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert modes == ["read", "permit"]


def test_what_is_entered_again_may_begin_the_next_transaction(shop: Shop, sell: Call) -> None:
    def hook() -> None:
        with shop.locks.lock("product_1", timeout=0):
            shop.db.session.commit()
            shop.product().stock -= 1
        shop.note("between")
        shop.db.session.commit()
        shop.note("after")

    after(shop, hook)
    shop.serve(sell)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "between+", "commit+", "after+"], 8)


def test_a_function_in_a_view_keeps_its_lock_until_the_view_commits(shop: Shop, sell: Call) -> None:
    guarded = distributed_lock("product_1", timeout=0)(sell)

    def view() -> str:
        guarded()
        guarded()
        shop.note("between")
        commit_and_note(shop)
        guarded()
        shop.db.session.commit()
        return "sold"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["between+", "commit+", "after-", "commit+"], 7)


def test_a_function_in_an_async_view_is_the_same(shop: Shop, sell: Call) -> None:
    guarded = distributed_lock("product_1", timeout=0)(sell)

    async def view() -> str:
        guarded()
        guarded()
        return "sold"

    after(shop, lambda: commit_and_note(shop))
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "after-"], 8)


def test_a_context_around_the_request_does_not_prolong_it(shop: Shop, sell: Call) -> None:
    after(shop, lambda: shop.note("hook"))
    shop.serve(sell)
    with shop.app.app_context():
        with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
            shop.post()
        assert not shop.db.session().in_transaction()
        assert not shop.locks.lock("product_1").locked()
    assert (shop.log, shop.stock()) == (["hook+"], 10)


def test_a_client_that_preserves_the_context_does_not_prolong_it(shop: Shop, sell: Call) -> None:
    after(shop, lambda: commit_and_note(shop))
    shop.serve(sell)
    with shop.app.test_client() as client:
        assert client.post("/").text == "sold"
        assert not held(shop)
    assert shop.log == ["commit+", "after+"]


def test_where_there_is_no_request_of_a_server_the_call_is_the_limit(shop: Shop, sell: Call) -> None:
    shop.serve(sell)
    with (
        shop.app.test_request_context("/", method="POST"),
        pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"),
    ):
        shop.app.view_functions["view"]()
    assert (shop.stock(), held(shop)) == (10, False)


@pytest.mark.parametrize(("wrap", "when"), [(iter, "free"), (stream_with_context, "locked")])
def test_a_stream_begins_when_the_lock_is_released_unless_it_goes_on_in_its_context(
    shop: Shop, sell: Call, wrap: Any, when: str
) -> None:
    def view() -> Response:
        sell()

        def content() -> Any:
            yield "locked" if held(shop) else "free"

        return Response(wrap(content()))

    shop.app.teardown_request(lambda error: shop.db.session.commit())
    shop.serve(view)
    assert shop.post().text == when
    assert not held(shop)
    assert (shop.log, shop.stock()) == (["commit+"], 9)


def test_a_hook_of_a_blueprint_and_of_a_class_are_inside(shop: Shop, sell: Call) -> None:
    class View(MethodView):
        decorators = [distributed_lock("product_1")]

        def post(self) -> Any:
            return sell()

    blueprint = Blueprint("shop", __name__)
    blueprint.add_url_rule("/", view_func=View.as_view("sell"))
    blueprint.after_request(lambda response: (commit_and_note(shop), response)[1])
    shop.app.register_blueprint(blueprint)
    assert shop.post().text == "sold"
    assert shop.log == ["commit+", "after+"]


def test_an_error_handler_commits_what_it_writes_by_itself(shop: Shop, sell: Call) -> None:
    def fail() -> str:
        sell()
        raise ZeroDivisionError

    @shop.app.errorhandler(ZeroDivisionError)
    def mend(error: ZeroDivisionError) -> str:
        shop.note("handler")
        shop.db.session.commit()
        return "mended"

    shop.serve(fail)
    assert shop.post().text == "mended"
    assert (shop.log[0], shop.stock()) == ("handler+", 10)


def test_a_thread_with_the_context_of_a_request_that_is_over_keeps_nothing(shop: Shop, sell: Call) -> None:
    answered = threading.Event()
    threads: list[threading.Thread] = []
    told: list[str] = []
    guarded = distributed_lock("product_1")(sell)

    def job() -> None:
        assert answered.wait(60)
        try:
            guarded()
        except ConfigurationError as error:
            told.append(str(error))

    @shop.app.post("/")
    def view() -> str:
        threads.append(threading.Thread(target=contextvars.copy_context().run, args=(job,)))
        threads[0].start()
        return "accepted"

    assert shop.post().text == "accepted"
    answered.set()
    threads[0].join(60)
    assert not held(shop)
    assert ["returned with uncommitted changes" in one for one in told] == [True]


@pytest.mark.parametrize("again", ["guard", "block"])
def test_a_kept_lock_is_not_waited_for_with_another_in_a_context_of_its_own(shop: Shop, again: str) -> None:
    both = distributed_lock("product_1", "z", timeout=0)(shop.sell)

    @shop.app.post("/")
    def view() -> str:
        with shop.locks.lock("product_1"):
            shop.product().stock -= 1
            shop.db.session.flush()
        block = shop.locks.lock("product_1", "z", timeout=0)
        ask = both if again == "guard" else block.acquire
        with shop.app.app_context(), pytest.raises(ConfigurationError, match="request keeps 'product_1'"):
            ask()
        shop.db.session.commit()
        return "sold"

    assert shop.post().text == "sold"
    assert not held(shop)


def test_two_guards_of_one_request_end_with_it(shop: Shop, sell: Call) -> None:
    inner = distributed_lock("product_2", timeout=0)(sell)

    def look() -> None:
        shop.note(f"names {current_grant().names}")
        commit_and_note(shop)
        assert shop.locks.lock("product_2").locked()

    after(shop, look)
    shop.serve(inner)
    assert shop.post().text == "sold"
    assert shop.log == ["names ('product_1',)+", "commit+", "after+"]
    with shop.app.app_context():
        assert not any(shop.locks.lock(name).locked() for name in ("product_1", "product_2"))


def test_nothing_is_logged_where_all_goes_well(
    shop: Shop, sell: Call, caplog: pytest.LogCaptureFixture
) -> None:
    after(shop, lambda: commit_and_note(shop))
    shop.serve(sell)
    with caplog.at_level(logging.WARNING):
        assert shop.post().text == "sold"
    assert caplog.text == ""


def test_the_sessions_of_requests_that_are_over_are_forgotten(shop: Shop, sell: Call) -> None:
    after(shop, lambda: shop.db.session.commit())
    shop.serve(sell)

    def sessions_left() -> int:
        gc.collect()
        # isinstance() would ask lazy objects of other tests what they are.
        return sum(issubclass(type(one), Session) for one in gc.get_objects())

    shop.post()
    before = sessions_left()
    for _ in range(5):
        assert shop.post().text == "sold"
    assert sessions_left() <= before
