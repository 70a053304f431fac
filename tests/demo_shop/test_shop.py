"""The shop over HTTP, as a buyer meets it: the same in both frameworks, over one database."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from typing import Any

import pytest

from demo_shop.configuration import Configuration
from loadtest.stack import Stack


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


def ask(port: int, method: str, path: str, body: str | None = None) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack(("django", "flask"), Configuration(guard="process", stock=3, products=3)) as running:
        yield running


def check_out(port: int, *lines: tuple[int, int]) -> Answer:
    cart = {"lines": [{"sku": sku, "quantity": quantity} for sku, quantity in lines]}
    return ask(port, "POST", "/checkout", json.dumps(cart))


@pytest.fixture(autouse=True)
def full_shelf(stack: Stack) -> None:
    stack.restock()


@pytest.fixture(params=[0, 1], ids=["django", "flask"])
def port(request: pytest.FixtureRequest, stack: Stack) -> int:
    return stack.instance_ports[request.param]


def test_a_purchase_takes_one_unit_and_answers_with_its_order(stack: Stack, port: int) -> None:
    answer = ask(port, "POST", "/products/1/reduce")
    assert answer.status == 200
    ledger = stack.ledger()
    assert ledger.left == {1: 2, 2: 3, 3: 3}
    assert [(order.number, order.stock_seen) for order in ledger.orders] == [(answer.json()["order"], 3)]
    assert ledger.orders[0].instance == answer.headers["X-Instance"]


def test_a_sold_out_product_answers_409(stack: Stack, port: int) -> None:
    assert [ask(port, "POST", "/products/1/reduce").status for _ in range(4)] == [200, 200, 200, 409]
    assert ask(port, "POST", "/products/1/reduce").json()["code"] == "sold_out"
    assert stack.ledger().left[1] == 0


def test_an_unknown_product_answers_404(port: int) -> None:
    assert ask(port, "POST", "/products/7/reduce").status == 404
    assert ask(port, "GET", "/products/7").status == 404


@pytest.mark.attack("A28")
def test_reading_the_reduce_url_buys_nothing(stack: Stack, port: int) -> None:
    assert ask(port, "GET", "/products/1/reduce").status == 405
    assert stack.ledger().sold == 0


def test_every_answer_names_its_instance(stack: Stack, port: int) -> None:
    name = stack.names[stack.instance_ports.index(port)]
    for method, path in [
        ("GET", "/"),
        ("GET", "/products/1"),
        ("GET", "/nowhere"),
        ("POST", "/products/7/reduce"),
    ]:
        assert ask(port, method, path).headers["X-Instance"] == name


def test_a_purchase_tells_how_long_it_waited(port: int) -> None:
    assert ask(port, "POST", "/products/1/reduce").headers["Server-Timing"].startswith("wait;dur=")


def test_the_two_frameworks_say_the_same_of_a_product(stack: Stack) -> None:
    for port in stack.instance_ports:
        ask(port, "POST", "/products/1/reduce")
    django, flask = (ask(port, "GET", "/products/1").json() for port in stack.instance_ports)
    assert (django.pop("instance"), flask.pop("instance")) == stack.names
    assert django == flask
    assert (django["stock"], django["sold"], len(django["recent_orders"])) == (1, 2, 2)


def test_the_storefront_shows_the_stock_and_the_orders(stack: Stack, port: int) -> None:
    order = ask(port, "POST", "/products/1/reduce").json()["order"]
    page = ask(port, "GET", "/")
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    for shown in [
        "ECS:1C2048M",
        '<span data-show="stock">2</span>',
        order,
        "Buy one",
        page.headers["X-Instance"],
    ]:
        assert shown in page.text
    assert "{{" not in page.text
    assert "{%" not in page.text


def test_the_storefront_says_what_is_sold_and_offers_it_only_while_there_is_some(port: int) -> None:
    assert "A small cloud server: 1 CPU, 2 GB of memory" in ask(port, "GET", "/").text
    for _ in range(3):
        assert "<button>Buy one</button>" in ask(port, "GET", "/").text
        ask(port, "POST", "/products/1/reduce")
    assert "<button disabled>Buy one</button>" in ask(port, "GET", "/").text


def test_a_cart_takes_all_its_lines_in_one_order(stack: Stack, port: int) -> None:
    answer = check_out(port, (3, 1), (1, 2), (3, 1))
    assert answer.status == 200
    assert answer.json()["units"] == {"1": 3, "3": 3}
    ledger = stack.ledger()
    assert ledger.left == {1: 1, 2: 3, 3: 1}
    assert {order.number for order in ledger.orders} == {answer.json()["order"]}
    assert ledger.sold == 4


def test_a_cart_of_which_one_line_is_sold_out_takes_nothing(stack: Stack, port: int) -> None:
    answer = check_out(port, (1, 1), (2, 4))
    assert (answer.status, answer.json()["code"]) == (409, "sold_out")
    assert stack.ledger().sold == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "another shape"),
        ("[]", "another shape"),
        ('{"lines": []}', "empty"),
        ('{"lines": [{"sku": "1"}]}', "whole numbers"),
        ('{"lines": [{"sku": true}]}', "whole numbers"),
        ('{"lines": [{"sku": 1, "quantity": -1}]}', "1 or more"),
    ],
)
def test_what_is_no_cart_is_told_so(stack: Stack, port: int, body: str, reason: str) -> None:
    answer = ask(port, "POST", "/checkout", body)
    assert (answer.status, answer.json()["code"]) == (400, "bad_cart")
    assert reason in answer.json()["title"]
    assert stack.ledger().sold == 0


def test_a_cart_with_an_unknown_product_takes_nothing(stack: Stack, port: int) -> None:
    assert check_out(port, (1, 1), (9, 1)).status == 404
    assert stack.ledger().sold == 0


def test_nginx_spreads_purchases_over_both_instances(stack: Stack) -> None:
    served = {ask(stack.front.port, "POST", "/products/1/reduce").headers["X-Instance"] for _ in range(3)}
    assert served == set(stack.names)
