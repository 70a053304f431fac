"""A race in several processes, and of requests to a server."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sqlalchemy

import distlock
from distlock.errors import ConfigurationError
from distlock.testing import race

STOCK = 5


class Shop:
    """Sells from a stock that all processes share, and writes down in which it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stock, self.sold = folder / "stock", folder / "sold"
        self.stock.write_text(str(STOCK))
        self.sold.touch()

    def sell(self, meet: Callable[[], object] = lambda: None) -> str:
        left = int(self.stock.read_text())
        if left < 1:
            return "sold out"
        meet()
        # In one step: no other process ever reads half of it.
        new = self.folder / f"{os.getpid()}-{threading.get_ident()}"
        new.write_text(str(left - 1))
        new.rename(self.stock)
        with self.sold.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return "sold"


def test_all_processes_are_inside_at_once_and_a_lock_of_the_host_keeps_them_apart(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    together = multiprocessing.get_context("fork").Barrier(10)
    assert race(lambda: shop.sell(lambda: together.wait(30)), times=10, processes=2).statuses == {"sold": 10}
    sellers = Counter(shop.sold.read_text().split())
    assert list(sellers.values()) == [5, 5]
    assert str(os.getpid()) not in sellers

    shop = Shop(tmp_path)
    locks = distlock.connect(f"{tmp_path.as_uri()}/locks", timeout=25)

    def guarded() -> str:
        with locks.lock("product_1"):
            return shop.sell()

    assert race(guarded, times=10, processes=2).statuses == {"sold": STOCK, "sold out": 5}
    locks.close()


def test_a_lock_that_other_processes_do_not_know_is_refused() -> None:
    locks = distlock.connect("memory://threads")

    def guarded() -> None:
        with locks.lock("product_1"):
            pass

    with pytest.raises(ConfigurationError, match="MemoryBackend keeps the threads of one apart"):
        race(guarded, times=2, processes=2)
    assert race(guarded, times=2).statuses == {None: 2}
    locks.close()


class Unsendable(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.lock = threading.Lock()


def test_what_can_not_be_sent_is_told_in_words() -> None:
    turn = iter([0, 1])

    def call() -> object:
        if next(turn):
            raise Unsendable("stock")
        return threading.Lock()

    ended = race(call, times=4, processes=2)
    assert ended.statuses["Unsendable"] == 2
    assert {repr(error) for error in ended.errors} == {"""RuntimeError("Unsendable('stock')")"""}
    assert all("lock object" in str(answer) for answer in ended.answers)


def test_a_process_that_dies_and_one_that_hangs_are_told() -> None:
    with pytest.raises(RuntimeError, match="has ended before its calls had"):
        race(lambda: os._exit(3), times=2, processes=2)
    with pytest.raises(TimeoutError, match=r"1 of 1 calls .*test_race_of_processes.py:\d+"):
        race(lambda: threading.Event().wait(60), times=2, processes=2, within=1)


def test_no_child_uses_a_pooled_connection_of_its_parent(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db")
    made_in: list[int] = []
    sqlalchemy.event.listen(engine, "connect", lambda *_: made_in.append(os.getpid()))
    with engine.connect():
        pass

    def ask() -> bool:
        with engine.connect():
            return made_in[-1] == os.getpid()

    assert race(ask, times=2, processes=2).statuses == {True: 2}
    assert made_in == [os.getpid()]
    engine.dispose()


class Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str | None, str]]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.seen.append((f"{self.command} {self.path}", self.headers["Content-Type"], body))
        self.send_response(302)
        self.send_header("Location", "/thanks")
        self.end_headers()
        self.wfile.write(b"sold")

    do_POST = do_GET = answer  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_server_that_runs_is_asked_from_two_processes(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}/products/1/reduce?by=1#top"
    ended = race(url, times=4, processes=2, json={"count": 1})
    assert ended.statuses == {302: 4}
    assert [answer.text for answer in ended.answers] == ["sold"] * 4  # type: ignore[attr-defined]
    asked = "POST /products/1/reduce?by=1", "application/json", json.dumps({"count": 1})
    assert Handler.seen == [asked] * 4

    Handler.seen.clear()
    race(url, times=2, data={"count": 1})
    assert Handler.seen == [(asked[0], "application/x-www-form-urlencoded", "count=1")] * 2

    Handler.seen.clear()
    race(url, times=2, method="get", headers={"Content-Type": "none"})
    assert Handler.seen == [("GET /products/1/reduce?by=1", "none", "")] * 2


@pytest.mark.parametrize("url", ["/products/1/reduce", "ftp://shop", "http://", "shop.example/products/1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no address of a server"):
        race(url)
