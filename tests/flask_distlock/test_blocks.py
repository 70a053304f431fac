"""``with locks.lock(…)`` of `DistLock` looks after the session as a guard does."""

from __future__ import annotations

import pytest
from sqlalchemy import text

import distlock
from distlock.errors import ConfigurationError
from tests.flask_distlock.session_shop import Call, Shop, after, commit_and_note


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
