"""The async shops, over HTTP: what they sell, what they fence, and what a long line costs them."""

from __future__ import annotations

import ast
import json
import resource
import socket
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

import distlock
from demo_shop.configuration import Configuration
from loadtest.scenario import ASGI, QUART
from loadtest.stack import Stack
from tests.demo_shop.test_once import ask
from tests.docs.blocks import ROOT, blocks
from tests.redis_server import eventually

BUYERS, THREADS = 1000, 50
#: Seconds, for what takes three on a machine that does nothing else.
PATIENCE = 120
SALE = Configuration(guard="distributed", stock=3, pause=0)
PATIENT = {
    ASGI: "tests.demo_shop.patient_django:application",
    QUART: "tests.demo_shop.patient_quart:app",
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack((ASGI, QUART), Configuration(guard="distributed", fence=True, stock=3, products=3)) as running:
        yield running


@pytest.fixture(params=[ASGI, QUART])
def shop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(stack: Stack, shop: str) -> int:
    stack.restock()
    return stack.instance_ports[stack.frameworks.index(shop)]


def test_a_purchase_is_sold_by_the_instance_that_it_names(stack: Stack, port: int, shop: str) -> None:
    name = stack.names[stack.frameworks.index(shop)]
    sold = ask(port, "/products/1/reduce", None)
    assert (sold.status, sold.headers["X-Instance"]) == (200, name)
    assert sold.headers["Server-Timing"].startswith("wait;dur=")
    (order,) = stack.ledger().orders
    assert (order.number, order.instance) == (sold.json()["order"], name)


def test_what_is_sold_out_or_not_there_is_refused(port: int) -> None:
    statuses = [ask(port, "/products/1/reduce", None).status for _ in range(4)]
    assert statuses == [200, 200, 200, 409]
    assert ask(port, "/products/7/reduce", None).status == 404
    assert ask(port, "/checkout", None, "?").status == 400
    assert ask(port, "/products/1/reduce", "").json()["code"] == "bad_key"


def test_a_cart_is_sold_as_a_whole_or_not_at_all(stack: Stack, port: int) -> None:
    cart = {"lines": [{"sku": 1}, {"sku": 2, "quantity": 2}]}
    assert [ask(port, "/checkout", None, json.dumps(cart)).status for _ in range(2)] == [200, 409]
    assert stack.ledger().left == {1: 2, 2: 1, 3: 3}


def test_a_purchase_with_a_key_is_made_once(stack: Stack, port: int) -> None:
    key = str(uuid.uuid4())
    first, again = (ask(port, "/products/1/reduce", key) for _ in range(2))
    assert (first.status, first.text) == (200, again.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert ask(port, "/products/2/reduce", key).json()["code"] == "key_reused"
    assert stack.ledger().sold == 1


def test_a_refusal_with_a_key_is_repeated_too(stack: Stack, port: int) -> None:
    cart = json.dumps({"lines": [{"sku": 1}, {"sku": 2, "quantity": 9}]})
    key = str(uuid.uuid4())
    first, again = (ask(port, "/checkout", key, cart) for _ in range(2))
    assert (first.status, first.text) == (409, again.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert stack.ledger().left == {1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("key", [None, "a key"])
def test_a_purchase_passes_the_fence_in_its_thread(stack: Stack, port: int, key: str | None) -> None:
    def passed() -> str:
        with closing(sqlite3.connect(stack.database.removeprefix("sqlite:///"))) as database:
            found = database.execute("SELECT * FROM distlock_fence WHERE name LIKE '%product_3'").fetchall()
        return str(found)

    before = passed()
    assert ask(port, "/products/3/reduce", key and str(uuid.uuid4())).status == 200
    assert passed() != before


def code_of(text: str) -> list[str]:
    """Its class and what comes after it, without docstrings and types."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AsyncFunctionDef):
            setattr(node, "annotation" if isinstance(node, ast.arg) else "returns", None)
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    (start,) = (number for number, one in enumerate(tree.body) if isinstance(one, ast.ClassDef))
    return [ast.unparse(one) for one in tree.body[start:]]


def test_the_handler_of_the_page_is_the_one_that_is_tested_here() -> None:
    (page,) = (block.text for block in blocks() if block.text.startswith("# asgi.py"))
    assert code_of(page) == code_of((ROOT / "demo_shop/django_shop/asgi.py").read_text("utf-8"))


@contextmanager
def many_files() -> Iterator[None]:
    """A socket for each buyer, here and in the instance, which inherits this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2 * BUYERS + 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(enough, hard)) if hard > 0 else enough, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.fault("F39")
def test_a_thousand_buyers_in_line_are_no_threads(shop: str) -> None:
    with many_files(), Stack((shop,), SALE, asgi_applications=PATIENT) as stack, ExitStack() as opened:
        port, process = stack.instance_ports[0], stack.instances[0].process.pid
        with distlock.connect(stack.shop.lock, prefix="shop").lock("product_1"):
            buyers = [opened.enter_context(connected(port)) for _ in range(BUYERS)]
            eventually(lambda: waiting(port) == BUYERS, "all of them wait", PATIENCE, pause=0.1)
            threads = len(list(Path(f"/proc/{process}/task").iterdir()))
        statuses = Counter(buyer.makefile("rb").read().split()[1] for buyer in buyers)
        assert threads < THREADS
        assert statuses == {b"200": 3, b"409": BUYERS - 3}
        assert stack.ledger().sold == 3


@pytest.mark.fault("F38")
@pytest.mark.fault("F38", control=True)
@pytest.mark.parametrize("framework", [ASGI, QUART, "flask"])
def test_behind_nginx_an_async_view_leaves_the_line_with_its_client_and_a_sync_view_sells(
    framework: str,
) -> None:
    with (
        Stack((framework,), SALE) as stack,
        closing(distlock.connect(stack.shop.lock, prefix="shop")) as locks,
    ):
        with locks.lock("product_1"):
            with connected(stack.front.port):
                eventually(lambda: locks.inspect("product_1").waiting == 1, "it waits", PATIENCE)
            if framework != "flask":
                eventually(lambda: locks.inspect("product_1").waiting == 0, "it has left", PATIENCE)
        if framework == "flask":
            eventually(lambda: stack.ledger().sold == 1, "it is sold to a client that is gone", PATIENCE)
        assert ask(stack.front.port, "/products/1/reduce", None).status == 200
        assert stack.ledger().sold == (2 if framework == "flask" else 1)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A buyer, who has asked and has no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as buyer:
        buyer.sendall(b"POST /products/1/reduce HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        yield buyer


def waiting(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/waiting", timeout=PATIENCE) as answer:
        return int(answer.read())
