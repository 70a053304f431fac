"""``with locks.lock(…)`` of `DistLock` looks after the session as a guard does."""

from __future__ import annotations

import pytest
from sqlalchemy import text

import distlock
from distlock.errors import ConfigurationError
from tests.flask_distlock.sql.session_shop import Call, Shop, after, commit_and_note


def test_a_lock_of_its_own_client_stays_as_it_is(shop: Shop) -> None:
    client = distlock.connect("memory://elsewhere")

    def view() -> str:
        with client.lock("printer"):
            shop.product().stock -= 1
        shop.db.session.commit()
        return "sold"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    client.close()


def test_a_block_outside_of_requests_ends_with_its_transaction(shop: Shop, sell: Call) -> None:
    forgotten = pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside it")
    with shop.app.app_context():
        with forgotten, shop.locks.lock("product_1"):
            sell()
        with shop.locks.lock("product_1"):
            sell()
            shop.db.session.commit()
            assert shop.product().stock == 9
    assert shop.stock() == 9


def test_a_block_outside_of_requests_that_raises_is_rolled_back(shop: Shop, sell: Call) -> None:
    def fail() -> None:
        with shop.locks.lock("product_1"):
            sell()
            raise ZeroDivisionError

    with shop.app.app_context():
        with pytest.raises(ZeroDivisionError):
            fail()
        assert shop.product().stock == 10


@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_what_was_changed_before_the_block_is_refused(shop: Shop, kind: str) -> None:
    with shop.app.app_context():
        shop.db.session.execute(text("UPDATE product SET stock = 5"))
        refused = pytest.raises(ConfigurationError, match="changes that are not committed")
        with refused, getattr(shop.locks, kind)("product_1"):
            raise AssertionError


def test_the_end_of_an_outer_rlock_is_that_of_its_block(shop: Shop, sell: Call) -> None:
    def view() -> str:
        with shop.locks.rlock("product_1"):
            with shop.locks.rlock("product_1"):
                sell()
            shop.db.session.commit()
            shop.note("inside")
            sell()
        return "sold"

    after(shop, lambda: commit_and_note(shop))
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "inside+", "commit+", "after-"], 8)


def test_a_block_that_raises_keeps_what_the_view_may_still_commit(shop: Shop, sell: Call) -> None:
    def view() -> str:
        try:
            with shop.locks.lock("product_1"):
                sell()
                raise ZeroDivisionError
        except ZeroDivisionError:
            commit_and_note(shop)
        return "sold"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "after-"], 9)


def test_an_async_block_is_looked_after(shop: Shop, sell: Call) -> None:
    async def view() -> str:
        before = shop.product().stock
        shop.db.session.rollback()
        async with shop.locks.lock("product_1"):
            sell()
        shop.note(f"{before}")
        return "sold"

    after(shop, lambda: commit_and_note(shop))
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["10+", "commit+", "after-"], 9)


def test_a_test_may_hold_the_lock_and_see_its_view_refused(shop: Shop) -> None:
    def view() -> str:
        with shop.locks.lock("product_1", timeout=0):
            pytest.fail("ran")

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    with shop.app.app_context(), shop.locks.lock("product_1"):
        assert shop.post().status_code == 423


def test_names_of_one_rlock_are_given_back_each_by_itself(shop: Shop) -> None:
    with shop.app.app_context():
        one, both = shop.locks.rlock("a"), shop.locks.rlock("a", "b")
        assert both.acquire()
        assert one.acquire()
        both.release()
        assert [shop.locks.lock(name).locked() for name in "ab"] == [True, False]
        assert one.owned()
        with shop.locks.rlock("b", timeout=0):
            pass
        one.release()
        assert [shop.locks.lock(name).locked() for name in "ab"] == [False, False]


def test_a_name_that_is_added_to_those_of_an_rlock_has_its_fence(shop: Shop) -> None:
    with shop.app.app_context(), shop.locks.rlock("a", "b") as outer:
        with shop.locks.rlock("a", "b", "c") as inner:
            assert [*inner.fences] == ["a", "b", "c"]
            assert inner.fences.items() > outer.fences.items()
            inner.check()
        assert [shop.locks.lock(name).locked() for name in "abc"] == [True, True, False]


def test_a_name_that_ends_before_the_other_is_kept_with_what_is_open(shop: Shop, sell: Call) -> None:
    def view() -> str:
        one, both = shop.locks.rlock("a"), shop.locks.rlock("a", "product_1")
        both.acquire()
        one.acquire()
        sell()
        both.release()
        shop.note("given back")
        shop.db.session.commit()
        shop.note("committed")
        one.release()
        return f"{shop.locks.lock('a').locked()}"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "False"
    assert shop.log == ["given back+", "commit+", "committed-"]


def test_what_several_names_keep_is_entered_again_name_by_name(shop: Shop, sell: Call) -> None:
    def view() -> str:
        with shop.locks.rlock("a", "product_1"):
            return str(sell())

    def again() -> None:
        with shop.locks.lock("a", "product_1") as grant:
            assert [*grant.fences] == ["a", "product_1"]
        both, one = shop.locks.rlock("a", "product_1"), shop.locks.rlock("product_1")
        both.acquire()
        one.acquire()
        both.release()
        commit_and_note(shop)
        one.release()
        shop.note("left")
        with shop.locks.rlock("product_1") as other:
            assert other.names == ("product_1",)

    after(shop, again)
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert shop.log == ["commit+", "after+", "left-"]


def test_one_of_several_names_that_are_kept_is_entered_alone(shop: Shop, sell: Call) -> None:
    inside = {}

    def view() -> str:
        with shop.locks.rlock("a", "product_1"):
            return str(sell())

    def again() -> None:
        with shop.locks.rlock("product_1") as grant:
            assert grant.names == ("product_1",)
            inside["a"] = shop.locks.rlock("a").owned()
        commit_and_note(shop)

    after(shop, again)
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert inside == {"a": False}
    assert shop.log == ["commit+", "after-"]
