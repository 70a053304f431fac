"""A person buys in a browser: clicks on the page, and sees what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import distlock
from demo_shop.configuration import Configuration
from loadtest.stack import Stack
from tests.demo_shop.browser import Page, open_browser

ASLEEP = "document.querySelector('#buy button').disabled"
AWAKE = f"!{ASLEEP} && !document.querySelector('#buy button').ariaDisabled"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    shop = Configuration(guard="distributed", stock=3, products=4, pause=0.0)
    with Stack(("django", "flask"), shop) as running:
        yield running


@pytest.fixture
def page(stack: Stack, browser: Page) -> Page:
    stack.restock()
    browser.open(f"{stack.url}/")
    return browser


def test_clicking_buy_takes_one_from_the_shelf_and_says_so(page: Page, stack: Stack, tmp_path: Path) -> None:
    assert page.text("[data-show=stock]") == "3"
    page.click("#buy button")
    page.wait_for("document.querySelector('#message').innerText.startsWith('Yours: unit 3, sold by ')")
    page.wait_for_text("[data-show=stock]", "2")
    assert page.text("[data-show=sold]") == "1"
    (order,) = stack.ledger().orders
    assert order.number in page.text("#message")
    assert order.number in page.text("#orders")
    page.photograph(tmp_path / "bought.png")
    assert (tmp_path / "bought.png").stat().st_size > 10_000


def test_who_clicks_until_nothing_is_left_finds_the_button_asleep(page: Page, stack: Stack) -> None:
    for left in (2, 1, 0):
        page.click("#buy button")
        page.wait_for_text("[data-show=stock]", str(left))
        page.wait_for(AWAKE if left else ASLEEP)
    page.click("#buy button")
    assert stack.ledger().left[1] == 0
    assert stack.ledger().sold == 3


def test_a_button_says_that_it_takes_no_click_while_a_purchase_is_under_way(page: Page, stack: Stack) -> None:
    with distlock.connect(stack.shop.lock, prefix="shop").lock("product_1"):
        page.click("#buy button")
        page.wait_for("document.querySelector('#buy button').ariaDisabled === 'true'")
        page.click("#buy button")
    page.wait_for(AWAKE)
    assert stack.ledger().sold == 1


def test_a_sale_to_somebody_else_shows_by_itself(page: Page, stack: Stack) -> None:
    with open_browser() as other:
        other.open(f"{stack.url}/")
        other.click("#buy button")
        page.wait_for_text("[data-show=stock]", "2")


def test_a_cart_is_ticked_and_checked_out(page: Page, stack: Stack) -> None:
    assert page.evaluate("document.querySelector('#cart button').disabled")
    for sku in (4, 2):
        page.click(f"#cart input[value='{sku}']")
    page.click("#cart button")
    page.wait_for("document.querySelector('#cart-message').innerText.startsWith('Yours: 2 in one order')")
    for sku, left in enumerate("3232", 1):
        page.wait_for_text(f"[data-left='{sku}']", left)
    assert stack.ledger().left == {1: 3, 2: 2, 3: 3, 4: 2}
    page.wait_for("!document.querySelector('#cart :checked')")
