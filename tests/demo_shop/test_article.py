"""The pages of the articles: what they answer and take. That they race is shown by the load test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo_shop.configuration import Configuration
from loadtest.stack import Stack
from tests.demo_shop.test_shop import ask


@pytest.fixture(scope="module", params=["process", "distributed"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    shop = Configuration(guard=request.param, stock=1, pause=0.0, kill_pause=0.0)
    with Stack(("django", "flask"), shop, with_goods=True) as running:
        yield running


@pytest.fixture(params=[0, 1], ids=["django", "flask"])
def port(request: pytest.FixtureRequest, stack: Stack) -> int:
    stack.restock()
    return stack.instance_ports[request.param]


def test_reduce_says_ok_to_everybody_and_takes_what_there_is(stack: Stack, port: int) -> None:
    answers = [ask(port, "GET", "/stock/reduce?id=1") for _ in range(3)]
    assert [(answer.status, answer.text) for answer in answers] == [(200, "OK")] * 3
    assert ask(port, "GET", "/products/1").json()["stock"] == 0


@pytest.mark.parametrize("query", ["", "?id=", "?id=one", "?id=-1"])
def test_reduce_of_what_is_no_product_is_refused(stack: Stack, port: int, query: str) -> None:
    assert ask(port, "GET", f"/stock/reduce{query}").status == 400
    assert ask(port, "GET", "/products/1").json()["stock"] == 1


def test_kill_congratulates_while_there_is_some(stack: Stack, port: int) -> None:
    answers = [ask(port, "GET", "/kill").text for _ in range(3)]
    assert answers == ["congratulations", "sold out", "sold out"]
    assert stack.ledger().left == {1: 0}
    assert stack.ledger().sold == 1


def test_kill_without_a_redis_says_what_to_set() -> None:
    with Stack(("flask",), Configuration()) as stack:
        answer = ask(stack.front.port, "GET", "/kill")
    assert answer.status == 503
    assert "set SHOP_GOODS to redis://" in answer.json()["title"]
