"""The page of the async shop: one person chooses a guard, and sends fifty buyers into two event loops."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from demo_shop.configuration import Configuration
from demo_shop.storefront import ASYNC_LINES
from loadtest.open_shop import serve_sales
from loadtest.scenario import ASGI, QUART
from loadtest.stack import Stack
from tests.demo_shop.browser import Page
from tests.demo_shop.test_sale import UNITS, send


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    shop = Configuration(guard="none", stock=UNITS, pause=0.05)
    with Stack((ASGI, QUART), shop, sales=serve_sales) as running:
        yield running


@pytest.fixture
def page(stack: Stack, browser: Page) -> Page:
    browser.open(f"{stack.url}/")
    browser.wait_for("document.querySelectorAll('#instances h3').length === 2")
    return browser


def units_sold(stack: Stack) -> Counter[int]:
    return Counter(order.stock_seen for order in stack.ledger().orders)


def test_less_than_a_distributed_lock_sells_units_twice(page: Page, stack: Stack) -> None:
    send(page, "process")
    assert max(units_sold(stack).values()) > 1
    assert "more than once" in page.text("#said")


def fence_rows(stack: Stack) -> int:
    with closing(sqlite3.connect(stack.database.removeprefix("sqlite:///"))) as database:
        return len(database.execute("SELECT * FROM distlock_fence WHERE name LIKE '%product_1'").fetchall())


@pytest.mark.parametrize(("choice", "rows"), [("distributed", 0), ("fenced", 1)])
def test_with_the_distributed_lock_no_unit_is_sold_twice(
    choice: str, rows: int, page: Page, stack: Stack
) -> None:
    send(page, choice)
    assert units_sold(stack) == Counter(range(1, UNITS + 1))
    assert fence_rows(stack) == rows
    assert page.text("#said").startswith(f"{UNITS} orders were confirmed, and there were {UNITS} units.")


def test_it_shows_the_lines_of_async_views_and_no_standstill(page: Page) -> None:
    shown = page.evaluate("[...document.querySelectorAll('.choice code')].map(code => code.textContent)")
    assert set(ASYNC_LINES.values()) < set(shown)
    assert page.evaluate("document.querySelector('#standstill').hidden")
