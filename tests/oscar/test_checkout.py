"""django-oscar, a shop that knows nothing of locks: its own checkout over HTTP, from two instances."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import distlock
from tests.oscar.buying import BACK, BOUGHT, Browser, buy
from tests.oscar.conftest import BUYERS, STOCK, Shop
from tests.oscar.site import THREADS, Site
from tests.redis_server import eventually
from tests.web.quickstart import two_instances

OpenShop = Callable[[], Shop]
#: How often a shop that oversells may fail to do so, because the machine was busy.
TRIES = 3
STALE = "and is saved under it"


def sell(shop: Shop) -> Counter[str]:
    with two_instances(shop.site.folder, "wsgi", threads=THREADS) as ports:
        answers = buy(ports, shop.sessions)
    assert answers[BOUGHT] == shop.orders() == shop.allocated(), answers
    return answers


def assert_oversells(open_shop: OpenShop, prepare: Callable[[Site], object]) -> None:
    """The bank keeps those together who have passed the look at the stock: see tests/oscar/bank.py."""
    sold = []
    while len(sold) < TRIES and max(sold, default=0) <= STOCK:
        shop = open_shop()
        prepare(shop.site)
        sold.append(sell(shop)[BOUGHT])
    assert sold[-1] > STOCK, sold


def assert_exact(shop: Shop) -> None:
    answers = sell(shop)
    assert answers == {BOUGHT: STOCK, BACK: BUYERS - STOCK}, shop.site.log()
    assert sum(shop.bank.payments.values()) == STOCK
    assert shop.bank.most == 1
    assert STALE not in shop.site.log()


def test_plain_oscar_oversells(open_shop: OpenShop) -> None:
    assert_oversells(open_shop, lambda site: None)


def test_a_rule_sells_what_is_there(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.site.add_rule()
    assert "no issues" in shop.site.check()
    assert_exact(shop)


def test_a_guard_in_dispatch_sells_what_is_there(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.site.guard_class("dispatch")
    assert "no issues" in shop.site.check()
    assert_exact(shop)


def test_a_guard_on_post_is_told_by_the_check(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.site.guard_class("post")
    said = shop.site.check()
    assert "distlock.W011" in said
    assert "dispatch() of oscar.apps.checkout.session.CheckoutSessionMixin runs before" in said
    assert "@distributed_lock(in_basket)" in said


def test_a_guard_on_post_oversells(open_shop: OpenShop) -> None:
    assert_oversells(open_shop, lambda site: site.guard_class("post"))


def click_twice(shop: Shop) -> list[str]:
    """Have one user send an order twice. Both requests wait for the lock before either gets it."""
    name = f"basket_{shop.one('SELECT min(id) FROM auth_user')}"
    browser = Browser(shop.sessions[0])
    locks = distlock.connect(f"file://{shop.site.folder}/locks", prefix="shop")
    with (
        contextlib.closing(locks),
        two_instances(shop.site.folder, "wsgi") as ports,
        ThreadPoolExecutor(2) as pool,
    ):
        with locks.lock(name):
            clicks = [pool.submit(browser.place_order, port) for port in ports]
            eventually(lambda: locks.inspect(name).waiting == 2, "both requests wait for the lock")
        return sorted(click.result() for click in clicks)


def test_a_double_click_is_one_order_and_one_payment(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.site.add_rule()
    assert click_twice(shop) == [BACK, BOUGHT]
    assert shop.orders() == shop.allocated() == 1
    assert sum(shop.bank.payments.values()) == 1
    assert shop.one("SELECT count(*) FROM basket_basket WHERE status = 'Submitted'") == 1
    assert STALE not in shop.site.log()
