"""The attacks, played on code as people write it without distlock: each of them does its harm there."""

from __future__ import annotations

import fcntl
import json
import logging
import socket
import sqlite3
import threading
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
import redis
from flask import Flask, Response, request
from kazoo.recipe.lock import Lock as KazooLock
from werkzeug.serving import make_server

import distlock
from distlock.testing.waits import PATIENCE, engine_of
from tests.hostile.test_names_of_clients import ASTRAL, POISON
from tests.redis_server import RedisServer, eventually, own_server, redis_server, running
from tests.zookeeper_server import CHROOT, ZooKeeperServer, zookeeper_server

__all__ = ["own_server", "redis_server", "zookeeper_server"]

Locking = Callable[[str], AbstractContextManager[object]]


@pytest.fixture
def locks() -> Iterator[distlock.Locks]:
    """A client whose locks plain code names by itself."""
    with closing(distlock.connect("memory://plain")) as client:
        yield client


@pytest.fixture
def plain(redis_server: RedisServer, zookeeper_server: ZooKeeperServer, tmp_path: Path) -> dict[str, Locking]:
    """By lock service: a lock that puts the id of a client into its name as it is."""

    @contextmanager
    def file(id: str) -> Iterator[None]:
        path = tmp_path / "locks" / f"product_{id}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def in_zookeeper(id: str) -> KazooLock:
        return zookeeper_server.admin.Lock(f"{CHROOT}/plain/product_{id}")

    return {
        "file": file,
        "zookeeper": in_zookeeper,
        "redis": lambda id: redis_server.client.lock(f"product_{id}", timeout=30, blocking=False),
    }


# -- names that a client chooses ---------------------------------------------------------------------


@pytest.mark.attack("A01", control=True)
def test_a_lock_of_kazoo_is_blocked_for_ever_by_the_name_of_another(plain: dict[str, Locking]) -> None:
    lock = plain["zookeeper"]
    with lock("3"):
        pass
    with lock(POISON[0].replace("2", "3", 1)):
        pass
    assert not lock("3").acquire(blocking=False)  # type: ignore[attr-defined]


@pytest.mark.attack("A02", control=True)
def test_an_id_with_a_slash_makes_a_folder_where_the_file_of_another_lock_would_be(
    plain: dict[str, Locking],
) -> None:
    lock = plain["file"]
    with lock("1/2"):
        pass
    with pytest.raises(IsADirectoryError), lock("1"):
        pass


@pytest.mark.attack("A03", "A44", control=True)
def test_a_file_is_emptied_that_is_no_lock(plain: dict[str, Locking], tmp_path: Path) -> None:
    lock = plain["file"]
    settings = tmp_path / "settings"
    settings.write_text("secret")
    with lock("a/../../settings"):
        pass
    assert settings.read_text() == ""
    settings.write_text("secret")
    (tmp_path / "locks/product_2").symlink_to(settings)
    with lock("2"):
        pass
    assert settings.read_text() == ""


@pytest.mark.attack("A05", "A06", "A07", control=True)
@pytest.mark.parametrize(
    ("service", "id"),
    [("file", "\x00"), ("zookeeper", "\ufffe"), ("zookeeper", ASTRAL[0]), ("redis", "\ud83d")],
)
def test_a_plain_view_fails_with_500(plain: dict[str, Locking], service: str, id: str) -> None:
    app = Flask("plain")

    @app.post("/buy")
    def buy() -> str:
        with plain[service](request.get_json()["id"]):
            return "ok"

    client = app.test_client()
    assert client.post("/buy", json={"id": "1"}).status_code == 200
    assert (
        client.post("/buy", data=json.dumps({"id": id}), content_type="application/json").status_code == 500
    )


class Shop:
    """The last piece of a product, whose code ignores case. Two buyers meet between read and write."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "shop.sqlite"
        self._meeting = threading.Barrier(2)
        self._run("CREATE TABLE product (code TEXT COLLATE NOCASE, stock INTEGER)")
        self._run("INSERT INTO product VALUES (?, 1)", "ecs")
        self._run("INSERT INTO product VALUES (?, 1)", "1")

    def _run(self, statement: str, *values: object) -> list[tuple[int]]:
        with closing(sqlite3.connect(self._database)) as connection, connection:
            return list(connection.execute(statement, values))

    def buy(self, lock: Locking, id: str, read: Callable[[str], object]) -> int:
        """Return what the buyer leaves in stock."""
        code = str(read(id))
        with lock(id):
            [(stock,)] = self._run("SELECT stock FROM product WHERE code = ?", code)
            self._meeting.wait(PATIENCE)
            self._run("UPDATE product SET stock = stock - 1 WHERE code = ?", code)
            return stock - 1


@pytest.mark.attack("A08", "A09", control=True)
@pytest.mark.parametrize(
    ("id", "other", "read"),
    [
        ("ecs", "ECS", str),
        ("ecs", " ecs ", str.strip),
        ("1", "01", int),
        ("1", "+1", int),
        ("1", "\u0661", int),
    ],
)
def test_the_last_piece_is_sold_to_each_spelling_of_it(
    plain: dict[str, Locking], tmp_path: Path, id: str, other: str, read: Callable[[str], object]
) -> None:
    shop = Shop(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        buying = [pool.submit(shop.buy, plain["redis"], spelled, read) for spelled in (id, other)]
        assert [one.result(PATIENCE) for one in buying] == [0, 0]


@pytest.mark.attack("A10", "A11", "A41", control=True)
@pytest.mark.parametrize(
    ("template", "one", "other"),
    [
        ("{id}", {"id": "", "sku": 1}, {"id": "", "sku": 2}),
        ("{id}", {"id": None, "sku": 1}, {"id": None, "sku": 2}),
        ("{shop}_{sku}", {"shop": "x_y", "sku": "z"}, {"shop": "x", "sku": "y_z"}),
    ],
)
def test_one_lock_serves_two_products(
    plain: dict[str, Locking], template: str, one: dict[str, object], other: dict[str, object]
) -> None:
    def lock(product: dict[str, object]) -> AbstractContextManager[object]:
        return plain["redis"](template.format(**product))

    with lock(one), pytest.raises(redis.exceptions.LockError), lock(other):
        pass


@pytest.mark.attack("A12", control=True)
def test_an_id_that_is_a_format_string_shows_the_secret_of_the_site() -> None:
    app = Flask("plain")
    app.secret_key = "secret-of-the-site"

    @app.post("/buy/<id>")
    def buy(id: str) -> str:
        return f"The lock {('product_' + id).format(app)} is taken."

    assert "secret-of-the-site" in app.test_client().post("/buy/{0.secret_key}").text


@pytest.mark.attack("A13", control=True)
def test_names_of_a_million_characters_fill_redis(own_server: RedisServer) -> None:
    def used() -> int:
        return int(own_server.client.info("memory")["used_memory"])

    before = used()
    for number in range(20):
        assert own_server.client.set(f"product_{number}{'x' * 1_000_000}", "token", nx=True, ex=3600)
    assert used() - before > 20_000_000


@pytest.mark.attack("A16", control=True)
def test_an_id_forges_a_line_of_the_log(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("tests.plain")
    logger.addHandler(handler)
    logger.error("The lock product_%s is taken.", "1\nWARNING ann has broken the lock product_2.\n")
    logger.removeHandler(handler)
    handler.close()
    assert "WARNING ann has broken the lock product_2." in (tmp_path / "log").read_text().splitlines()


@pytest.mark.attack("A17", control=True)
def test_a_search_that_is_a_pattern_finds_what_it_does_not_name(own_server: RedisServer) -> None:
    for name in ("ann", "bob"):
        own_server.client.set(f"product_{name}", "token")
    assert own_server.client.keys("*product_[a-z]*") == own_server.client.keys("*")
    assert own_server.client.info("commandstats")["cmdstat_keys"]["calls"] == 2


@pytest.mark.attack("A18", control=True)
def test_each_id_that_was_ever_asked_for_leaves_something_behind(
    plain: dict[str, Locking], zookeeper_server: ZooKeeperServer
) -> None:
    by_name: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100_000):
            with by_name[f"product_{number}"]:
                pass
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before > 10_000_000
    for number in range(1000, 1100):
        with plain["zookeeper"](str(number)):
            pass
    left = zookeeper_server.admin.get_children(f"{CHROOT}/plain")
    assert {f"product_{number}" for number in range(1000, 1100)} <= set(left)


# -- who may, and how many ---------------------------------------------------------------------------


@contextmanager
def serving(app: Flask) -> Iterator[Callable[[str], socket.socket]]:
    """Serve *app* with a thread for each request. Yields a function that sends one and returns its socket."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def send(path: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
        connection.sendall(f"POST {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        return connection

    try:
        yield send
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


@pytest.mark.attack("A22", control=True)
def test_a_loop_that_asks_until_it_has_the_lock_sells_to_clients_that_have_gone(
    redis_server: RedisServer,
) -> None:
    app, waiting, sold = Flask("plain"), threading.Semaphore(0), threading.Semaphore(0)
    pause = threading.Event()
    assert redis_server.client.set("product_of_the_gone", "a holder", nx=True)

    @app.post("/buy")
    def buy() -> str:
        waiting.release()
        while not redis_server.client.set("product_of_the_gone", "token", nx=True):
            pause.wait(0.05)
        sold.release()
        redis_server.client.delete("product_of_the_gone")
        return "sold"

    with serving(app) as send:
        for _ in range(5):
            send("/buy").close()
        assert all(waiting.acquire(timeout=PATIENCE) for _ in range(5))
        redis_server.client.delete("product_of_the_gone")
        assert all(sold.acquire(timeout=PATIENCE) for _ in range(5))


@pytest.mark.attack("A23", control=True)
def test_a_client_that_says_how_long_it_waits_waits_as_long(locks: distlock.Locks) -> None:
    app = Flask("plain")

    @app.post("/buy")
    def buy() -> str:
        with locks.lock("product_1", timeout=float(request.headers["X-Lock-Timeout"])):
            return "sold"

    client = app.test_client()
    with ThreadPoolExecutor(1) as pool:
        with locks.lock("product_1"):
            buying = pool.submit(client.post, "/buy", headers={"X-Lock-Timeout": "1e6"})
            eventually(lambda: engine_of(locks).queues.waiting == 1, "it waits")
            threading.Event().wait(1.0)
            assert not buying.done()
        assert buying.result(PATIENCE).text == "sold"


@pytest.mark.attack("A25", control=True)
def test_while_a_stream_is_read_slowly_its_lock_is_held(locks: distlock.Locks) -> None:
    app = Flask("plain")

    @app.get("/export")
    def export() -> Response:
        def lines() -> Iterator[str]:
            with locks.lock("product_1"):
                yield "the first line"
                yield "the second line"

        return Response(lines())

    answer = app.test_client().get("/export")
    lines = answer.iter_encoded()
    assert next(lines) == b"the first line"
    assert locks.lock("product_1").acquire(timeout=0) is None
    assert list(lines) == [b"the second line"]
    answer.close()


@pytest.mark.attack("A26", control=True)
def test_two_that_lock_in_opposite_orders_both_wait_in_vain(plain: dict[str, Locking]) -> None:
    meeting = threading.Barrier(2)

    def buy(first: str, second: str) -> bool:
        with plain["redis"](first):
            meeting.wait(PATIENCE)
            got = plain["redis"](second).acquire(blocking=True, blocking_timeout=1)  # type: ignore[attr-defined]
            meeting.wait(PATIENCE)
            return bool(got)

    with ThreadPoolExecutor(2) as pool:
        carts = [pool.submit(buy, *cart) for cart in (("cart_a", "cart_b"), ("cart_b", "cart_a"))]
        assert [cart.result(PATIENCE) for cart in carts] == [False, False]


@pytest.mark.attack("A27", control=True)
def test_a_view_that_calls_itself_waits_until_somebody_breaks_its_lock() -> None:
    app, lock, entered, done = Flask("plain"), threading.Semaphore(1), threading.Semaphore(0), []

    @app.post("/<depth>")
    def view(depth: str) -> str:
        entered.release()
        with lock:
            if depth == "outer":
                with send("/inner") as inner, inner.makefile("rb") as answer:
                    answer.read()
            done.append(depth)
        return "ok"

    with serving(app) as send, send("/outer") as outer:
        assert entered.acquire(timeout=PATIENCE)
        assert entered.acquire(timeout=PATIENCE)
        threading.Event().wait(1.0)
        assert done == []
        lock.release()
        with outer.makefile("rb") as answer:
            assert b"200" in answer.readline()
    assert done == ["inner", "outer"]


@pytest.mark.attack("A30", control=True)
def test_an_answer_that_is_kept_by_its_key_alone_is_told_to_another_purchase() -> None:
    app, answers, orders = Flask("plain"), dict[str, str](), list[int]()

    @app.post("/buy/<int:product>")
    def buy(product: int) -> str:
        key = request.headers["Idempotency-Key"]
        if key not in answers:
            orders.append(product)
            answers[key] = f"order {len(orders)}: product {product}"
        return answers[key]

    client = app.test_client()
    told = [client.post(f"/buy/{product}", headers={"Idempotency-Key": "k"}).text for product in (1, 2)]
    assert (told, orders) == (["order 1: product 1"] * 2, [1])


# -- secrets, and what others write ------------------------------------------------------------------


@pytest.mark.attack("A36", control=True)
def test_a_lock_that_is_deleted_without_a_look_at_its_token_is_held_by_two(
    redis_server: RedisServer,
) -> None:
    client = redis_server.client
    assert client.set("product_of_two", "the token of one", nx=True, ex=30)
    client.delete("product_of_two")  # by somebody who does not know the token
    assert client.set("product_of_two", "the token of two", nx=True, ex=30)


@pytest.mark.attack("A37", control=True)
def test_the_error_of_a_server_quotes_the_password() -> None:
    for server in running("--rename-command", "AUTH", "LOGIN"):
        plain = redis.Redis(port=server.port, password="secret-of-the-site", protocol=2)
        with pytest.raises(redis.ResponseError, match="secret-of-the-site"):
            plain.ping()
        with (
            closing(distlock.connect(f"redis://:secret-of-the-site@127.0.0.1:{server.port}")) as locks,
            pytest.raises(distlock.BackendUnavailable) as refused,
        ):
            locks.lock("product_1").acquire()
        assert "secret-of-the-site" not in str(refused.value)


@pytest.mark.attack("A42", control=True)
def test_a_key_that_another_program_wrote_blocks_a_lock_for_ever_and_in_silence(
    plain: dict[str, Locking], redis_server: RedisServer
) -> None:
    redis_server.client.rpush("product_odd", "their data")
    with pytest.raises(redis.exceptions.LockError), plain["redis"]("odd"):
        pass
    assert redis_server.client.ttl("product_odd") == -1
