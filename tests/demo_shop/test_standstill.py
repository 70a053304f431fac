"""A person ticks the box: one process stands still while it holds the lock. What is the fence for?"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psutil
import pytest

from demo_shop.configuration import IN_THE_DATABASE, Configuration
from loadtest.live_sale import BUYERS, told_meanwhile, told_of_standstill
from loadtest.moments import Standstill, StoppedHolder
from loadtest.open_shop import serve_sales
from loadtest.servers.processes import thread_states
from loadtest.stack import Stack
from tests.demo_shop.accessibility import grave_faults
from tests.demo_shop.browser import Page
from tests.redis_server import eventually

UNITS = 20
READY = "document.querySelector('#sale button').ariaDisabled === 'false'"
BOX = "[name=stands-still]"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # README's TTL, 10 s, only shorter: nobody waits for it here.
    shop = Configuration(guard="none", stock=UNITS, pause=0.02, lock_ttl=1.0)
    with Stack(("django", "flask"), shop, "redis", sales=serve_sales) as running:
        yield running


@pytest.fixture
def page(stack: Stack, browser: Page) -> Page:
    browser.resize(390)
    browser.open(f"{stack.url}/")
    browser.wait_for("!document.querySelector('#standstill').hidden")
    return browser


def send(page: Page, choice: str, meanwhile: str) -> None:
    """Send buyers while a process stands still. *meanwhile*: what is to be read while it does."""
    page.wait_for(READY)
    page.click(f"[name=guard][value={choice}]")
    if not page.evaluate(f"document.querySelector('{BOX}').checked"):
        page.click(BOX)
    page.click("#sale button")
    page.wait_for(f"document.querySelector('#said').innerText.includes({json.dumps(meanwhile)})")
    page.wait_for(READY)
    assert page.evaluate("document.querySelector('#answered').value") == BUYERS


def test_without_the_fence_the_unit_of_the_one_who_stood_still_is_sold_twice(
    page: Page, stack: Stack
) -> None:
    send(page, "distributed", "django-1 stands still, and holds the lock.")
    orders = stack.ledger().orders
    late = [order.instance for order in orders if order.stock_seen == UNITS]
    assert sorted(late) == ["django-1", "flask-2"]
    said = page.text("#said")
    assert said.startswith("django-1 stood still for ")
    assert "the lock that it held passed on" in said
    assert f"Then it went on, and sold unit {UNITS}, which it had read before." in said
    assert "sold more than once" in said
    assert int(page.text("[data-show=excess]")) >= 1
    assert "that is what the fence is for" in page.text("#why")
    assert page.text("[data-last=distributed]").startswith("One process stood still: ")


def test_with_the_fence_it_is_rolled_back_and_every_unit_is_sold_once(page: Page, stack: Stack) -> None:
    send(page, "fenced", "the lock has passed on: django-1 does not know")
    assert sorted(order.stock_seen for order in stack.ledger().orders) == list(range(1, UNITS + 1))
    said = page.text("#said")
    assert "its purchase was rolled back: the buyer had to come again." in said
    assert f"{UNITS} orders were confirmed, and there were {UNITS} units. No unit was sold twice." in said
    assert page.text("[data-show=excess]") == "0"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert grave_faults(page) == []


def test_with_a_process_lock_the_others_do_not_even_wait() -> None:
    standing = StoppedHolder("django-1", lease=10, unit=20, locked=False, began=0.0)
    assert told_meanwhile(standing) == (
        "django-1 stands still. It has read 20 in stock, and others buy meanwhile."
    )
    over = replace(standing, lasted=3.2, sold=1, status=200)
    assert told_of_standstill(over) == (
        "django-1 stood still for 3 s after it had read 20 in stock; others bought 1 unit meanwhile. "
        "Then it went on, and sold unit 20, which it had read before."
    )


def test_what_comes_to_its_port_and_is_no_purchase_stops_nothing(stack: Stack) -> None:
    port = int(stack.shop.stall.split(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        ask(f"{stack.url}/sale/fenced?stands-still")
        eventually(lambda: not told(f"{stack.url}/sale")["runs"], "the sale has ended")
    assert told(f"{stack.url}/sale")["said"].startswith("django-1 stood still for ")


def test_a_shop_that_is_closed_meanwhile_ends_at_once() -> None:
    """And leaves nobody standing."""
    shop = Configuration(stock=UNITS, pause=0.0, lock_ttl=60.0)
    with Stack(("django",), shop, "redis", sales=serve_sales) as stack:
        ask(f"{stack.url}/sale/distributed?stands-still")
        instance = stack.instances[0]
        instance.wait_until(lambda: "T" in thread_states(instance.process.pid))
        arbiter = psutil.Process(instance.process.pid)
        standing = [arbiter, *arbiter.children(recursive=True)]
        assert len(standing) == 2
    assert psutil.wait_procs(standing, timeout=10)[1] == []


@pytest.mark.parametrize(
    ("framework", "lock"),
    [("django", "file:///locks"), ("django", IN_THE_DATABASE), ("flask", "redis://localhost/0")],
)
def test_where_nothing_can_be_shown_it_is_not_offered(framework: str, lock: str) -> None:
    stack = Stack((framework,), Configuration(lock=lock))
    with closing(Standstill(stack)) as standstill:
        assert not standstill.offered
    assert stack.shop.stall == ""


def ask(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60):
        pass


def told(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)
