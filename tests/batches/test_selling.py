"""Two processes sell one product in batches: everything once, in fewer transactions than sales."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, text

from demo_shop.ledger import database_url
from flask_distlock.fence import fence_table
from tests.batches.site import THREADS
from tests.databases import Databases
from tests.redis_server import PATIENCE, RedisServer, eventually, stand_still

ROOT = Path(__file__).parents[2]
STOCK = 200


class Site:
    """A process that sells."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "tests.batches.site", *map(str, words)]
        self._popen = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.says() == "ready"

    def says(self) -> str:
        assert self._popen.stdout is not None
        # One that says nothing would keep the test waiting for ever.
        late = threading.Timer(PATIENCE, self._popen.kill)
        late.start()
        line = self._popen.stdout.readline().strip()
        late.cancel()
        assert line, f"it ended with {self._popen.wait()}"
        return line

    def go_on(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write("go\n")
        self._popen.stdin.flush()

    def finish(self) -> tuple[dict[str, int], set[str]]:
        """Its answers, and the orders that were answered as sold."""
        said = json.loads(self.says())
        return said["answers"], set(said["sold"])

    def stand_still(self) -> None:
        stand_still(self._popen)

    def run_again(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._popen.kill()
        self._popen.communicate()


class Shop:
    """The database, and the processes that sell from it."""

    def __init__(self, framework: str, url: str, redis: str) -> None:
        self._words = framework, url, redis
        self._sites: list[Site] = []
        self.engine = create_engine(database_url(url), isolation_level="AUTOCOMMIT")
        metadata = MetaData()
        fence_table(metadata)
        metadata.drop_all(self.engine)
        metadata.create_all(self.engine)
        self.ask("DROP TABLE IF EXISTS product, sale")
        self.ask("CREATE TABLE product (id int PRIMARY KEY, stock int NOT NULL)")
        self.ask("CREATE TABLE sale (id text PRIMARY KEY, made_by text DEFAULT pg_current_xact_id()::text)")
        self.ask(f"INSERT INTO product VALUES (1, {STOCK})")

    def ask(self, statement: str) -> Any:
        with self.engine.connect() as connection:
            result = connection.execute(text(statement))
            return result.scalars().all() if result.returns_rows else None

    def site(self, posts: int, ttl: float = 10.0, halt: int = 0) -> Site:
        self._sites.append(Site(*self._words, 32, posts, ttl, halt))
        return self._sites[-1]

    def sold(self) -> set[str]:
        """The orders. The stock has to agree."""
        orders = set(self.ask("SELECT id FROM sale"))
        assert self.ask("SELECT stock FROM product") == [STOCK - len(orders)]
        return orders

    def close(self) -> None:
        for site in self._sites:
            site.close()
        self.engine.dispose()


@pytest.fixture(params=["django", "flask"])
def shop(request: pytest.FixtureRequest, databases: Databases, redis_server: RedisServer) -> Iterator[Shop]:
    shop = Shop(request.param, databases("postgresql", "batches"), redis_server.url)
    yield shop
    shop.close()


def test_two_processes_sell_everything_once_in_fewer_transactions_than_sales(shop: Shop) -> None:
    posts = 15
    sites = [shop.site(posts), shop.site(posts)]
    for site in sites:
        site.go_on()
    (one, sold_by_one), (other, sold_by_other) = (site.finish() for site in sites)
    for site in sites:
        site.close()
    assert Counter(one) + Counter(other) == {"200": STOCK, "409": 2 * THREADS * posts - STOCK}
    assert sold_by_one | sold_by_other == shop.sold()
    made_by = shop.ask("SELECT count(*) FROM sale GROUP BY made_by")
    assert THREADS in made_by, made_by
    assert len(made_by) < STOCK


@pytest.mark.fault("F01")
def test_a_process_that_is_killed_in_a_batch_has_sold_nothing(shop: Shop) -> None:
    one, other = shop.site(1, ttl=1.0, halt=3), shop.site(1)
    one.go_on()
    assert one.says() == "halted"
    other.go_on()
    one.close()
    answers, sold = other.finish()
    assert answers == {"200": THREADS}
    assert shop.sold() == sold


@pytest.mark.fault("F33")
def test_a_process_that_stands_still_in_a_batch_sells_nothing_of_it(shop: Shop) -> None:
    one, other = shop.site(1, ttl=1.0, halt=3), shop.site(1)
    one.go_on()
    assert one.says() == "halted"
    one.stand_still()
    other.go_on()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    eventually(lambda: shop.ask(waiting) == [1], "the lock has passed on, and the fence's row is waited for")
    one.run_again()
    one.go_on()
    (answers, sold), (others, sold_by_others) = one.finish(), other.finish()
    assert answers == {"503": 3, "200": THREADS - 3}
    assert others == {"200": THREADS}
    assert shop.sold() == sold | sold_by_others
