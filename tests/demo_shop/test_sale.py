"""One person with one browser sends fifty buyers, and sees which guard keeps them apart."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import distlock
from demo_shop.configuration import IN_THE_DATABASE, Configuration
from demo_shop.storefront import choices, chosen
from loadtest.live_sale import BUYERS
from loadtest.open_shop import serve_sales
from loadtest.stack import Stack
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page

UNITS = 20
READY = "document.querySelector('#sale button').ariaDisabled === 'false'"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    shop = Configuration(guard="none", stock=UNITS, pause=0.05)
    with Stack(("django", "flask"), shop, sales=serve_sales) as running:
        yield running


@pytest.fixture
def page(stack: Stack, browser: Page) -> Page:
    browser.open(f"{stack.url}/")
    # What the first answer says.
    browser.wait_for("document.querySelectorAll('#instances h3').length === 2")
    return browser


def send(page: Page, choice: str) -> None:
    """Click on both, and wait until all buyers have their answer."""
    page.wait_for(READY)
    page.click(f"[name=guard][value={choice}]")
    page.click("#sale button")
    page.wait_for(READY)
    assert page.evaluate("document.querySelector('#answered').value") == BUYERS


def ask(stack: Stack, method: str, path: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"{stack.url}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, json.load(answer)


@pytest.mark.parametrize("choice", ["none", "process"])
def test_less_than_a_distributed_lock_sells_units_twice_and_the_page_marks_them(
    choice: str, page: Page, stack: Stack
) -> None:
    send(page, choice)
    orders = stack.ledger().orders
    units = Counter(order.stock_seen for order in orders)
    excess = len(orders) - len(units)
    assert excess > 0
    assert page.text("[data-show=sold]") == str(len(orders))
    assert page.text("[data-show=excess]") == str(excess)
    assert page.text("[data-show=repeated]") == str(sum(times > 1 for times in units.values()))
    marked = page.evaluate("[...document.querySelectorAll('li.twice')].map(unit => parseInt(unit.innerText))")
    assert set(marked) == {unit for unit, times in units.items() if times > 1}
    assert "more than once" in page.text("#said")
    assert f"{excess} for units already sold" in page.text(f"[data-last={choice}]")


@pytest.mark.parametrize("choice", ["distributed", "fenced"])
def test_with_the_distributed_lock_no_unit_is_sold_twice(choice: str, page: Page, stack: Stack) -> None:
    send(page, choice)
    orders = stack.ledger().orders
    assert sorted(order.stock_seen for order in orders) == list(range(1, UNITS + 1))
    assert page.text("[data-show=stock]") == "0"
    assert page.text("[data-show=excess]") == "0"
    assert page.evaluate("document.querySelectorAll('li.unit').length") == UNITS
    assert page.evaluate("document.querySelectorAll('li.twice').length") == 0
    assert page.text("#said").startswith(f"{UNITS} orders were confirmed, and there were {UNITS} units.")
    assert "No unit was sold twice. 30 buyers were told “sold out”." in page.text("#said")
    sold = Counter(order.instance for order in orders)
    for name in stack.names:
        assert f"{name} sold {sold[name]}" in page.text("#instances")


def test_the_page_moves_while_buyers_wait(page: Page, stack: Stack) -> None:
    page.wait_for(READY)
    page.click("[name=guard][value=distributed]")
    with distlock.connect(stack.shop.lock, prefix="shop").lock("product_1"):
        page.click("#sale button")
        page.wait_for_text("#said", "50 buyers have come. distlock …")
        # The shelf is full again, and nobody has got anything yet.
        page.wait_for_text("[data-show=stock]", str(UNITS))
        page.wait_for_text("[data-show=sold]", "0")
        assert page.evaluate("document.querySelector('#answered').value") < BUYERS
        assert not page.evaluate(READY)
    page.wait_for(READY)
    assert page.evaluate("document.querySelector('#answered').value") == BUYERS
    assert page.text("[data-show=excess]") == "0"


def test_a_purchase_by_hand_meets_the_guard_that_is_chosen(page: Page, stack: Stack) -> None:
    stack.restock()
    page.wait_for("!document.querySelector('#buy button').disabled")
    page.click("[name=guard][value=fenced]")
    page.click("#buy button")
    page.wait_for("document.querySelector('#message').innerText.startsWith('Yours: unit 20')")
    asked = page.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
    assert f"{stack.url}/products/1/reduce/fenced" in asked


def test_a_keyboard_sends_buyers_again_and_again(page: Page, stack: Stack) -> None:
    before = ask(stack, "GET", "/sale")[1]["number"]
    page.wait_for(READY)
    page.evaluate("document.querySelector('#sale button').focus()")
    for _ in range(2):
        page.press_enter()
        page.wait_for(READY)
    assert ask(stack, "GET", "/sale")[1]["number"] == before + 2


def test_the_page_has_no_grave_fault_of_accessibility_and_fits_a_phone(page: Page) -> None:
    send(page, "none")
    assert faults_everywhere(page) == []


def test_there_is_one_sale_at_a_time_and_none_with_an_unknown_guard(stack: Stack) -> None:
    with distlock.connect(stack.shop.lock, prefix="shop").lock("product_1"):
        assert ask(stack, "POST", "/sale/distributed")[0] == 202
        status, said = ask(stack, "POST", "/sale/none")
        assert (status, said["title"]) == (409, "A sale is under way. Wait for its end")
        assert ask(stack, "GET", "/sale")[1]["runs"]
    status, said = ask(stack, "POST", "/sale/hope")
    assert status == 404
    assert "none, process, distributed, fenced" in said["title"]


def test_where_a_holder_keeps_its_lock_there_is_no_box_to_tick(page: Page, stack: Stack) -> None:
    """Files have no lease."""
    assert page.evaluate("document.querySelector('#standstill').hidden")
    status, said = ask(stack, "POST", "/sale/distributed?stands-still")
    assert (status, said["title"]) == (404, "Nothing can stand still here: scripts/demo up --backend redis")


def test_where_a_row_is_the_lock_there_is_no_fence_to_choose() -> None:
    assert list(choices(Configuration(lock=IN_THE_DATABASE))) == ["none", "process", "distributed"]


@pytest.mark.parametrize(
    ("shop", "slug"),
    [
        (Configuration(guard="distributed"), "distributed"),
        (Configuration(guard="distributed", fence=True), "fenced"),
        (Configuration(guard="distributed", fence=True, lock=IN_THE_DATABASE), "distributed"),
        (Configuration(guard="conditional"), "conditional"),
    ],
)
def test_the_guard_that_the_shop_was_opened_with_is_chosen(shop: Configuration, slug: str) -> None:
    assert chosen(shop) == slug
    assert choices(shop)[slug].guard == shop.guard
