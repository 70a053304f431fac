"""Rows of names that nobody locks any more go, and nobody who is older than they were comes in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from distlock.errors import ConfigurationError
from distlock.fence.prune import BATCH
from distlock.fence.stamps import OldEpoch, Overtaken, floor_of, key_of
from distlock.fence.trouble import trouble
from distlock.grants.grant import Fence
from distlock.web.settings.dummy import DummyLocks
from flask_distlock.sql import fenced_sessions
from tests.databases import Databases, on
from tests.fence.conftest import STOCK
from tests.fence.instance import Order
from tests.fence.instances import Stock, started
from tests.fence.pairs import LONG, LOST, SHORT, SOLD, Pair
from tests.fence.test_new_rows import LEVELS, strict
from tests.fence.test_passing import FakeGrant, grant, passes, until_it_waits
from tests.fence.test_table import run as flask_command
from tests.redis_server import RedisServer

__all__ = ["strict"]

DAY = 86_400_000_000

at_every_level = pytest.mark.parametrize(("database", "level"), LEVELS, indirect=["database"])


def prune(engine: Engine, days: float = 30) -> int:
    return fenced_sessions.prune(engine, "default", days, dry_run=False)


def age(engine: Engine, days: float = 31) -> None:
    """All rows were passed so long ago."""
    with engine.begin() as connection:
        ago = "UPDATE distlock_fence SET passed_at = :when"
        connection.execute(text(ago), {"when": time.time_ns() // 1000 - int(days * DAY)})


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT name FROM distlock_fence WHERE name <> '' ORDER BY name"))
        return [name for (name,) in found]


@pytest.mark.attack("A18")
def test_old_rows_go_and_young_ones_stay(engine: Engine) -> None:
    passes(engine, grant(1, "mine", "old_1", "old_2"))
    age(engine)
    passes(engine, grant(2, "mine", "young"))
    assert prune(engine) == 2
    assert names(engine) == ["young"]
    assert prune(engine) == 0


@at_every_level
def test_who_is_older_than_a_row_that_was_pruned_is_kept_out(engine: Engine, strict: Engine) -> None:
    passes(strict, grant(34))
    age(engine)
    assert prune(strict) == 1
    for late in (grant(33), grant(34, "another")):
        with pytest.raises(Overtaken, match=r"'product_1' was overtaken: .* seen 1:34"):
            passes(strict, late)
    passes(strict, grant(35))
    # A name that has passed is remembered as ever.
    with pytest.raises(Overtaken):
        passes(strict, grant(34))


def test_without_its_floor_who_is_older_comes_in(engine: Engine) -> None:
    """The control: a DELETE by hand forgets who was there."""
    passes(engine, grant(34))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM distlock_fence"))
    passes(engine, grant(33))


def test_each_prefix_has_its_own_floor(engine: Engine) -> None:
    passes(engine, grant(34))
    age(engine)
    prune(engine)
    elsewhere = FakeGrant({"product_1": Fence(1, 1)}, "mine")
    elsewhere.namespace = "other"
    passes(engine, elsewhere)


def test_the_floor_is_the_largest_that_was_ever_taken_away(engine: Engine) -> None:
    passes(engine, grant(40, "mine", "b"))
    passes(engine, grant(50, "mine", "a"))
    age(engine)
    assert prune(engine) == 2
    for name in "ab":
        with pytest.raises(Overtaken):
            passes(engine, grant(45, "late", name))


def test_the_era_counts_first_and_rows_of_a_later_one_wait_for_those_who_live_in_an_earlier(
    engine: Engine,
) -> None:
    passes(engine, FakeGrant({"moved": Fence(2, 1)}, "mine"))
    passes(engine, grant(90, "mine", "stayed"))
    age(engine)
    passes(engine, grant(99, "mine", "living"))
    # A floor of the epoch 2 would shut out a new name in the epoch 1.
    assert prune(engine) == 1
    assert names(engine) == ["living", "moved"]
    passes(engine, grant(100, "mine", "new"))
    age(engine)
    assert prune(engine) == 3
    with pytest.raises(OldEpoch):
        passes(engine, grant(2**62, "mine", "stayed"))


@on("postgresql", "mariadb")  # Any writer of SQLite locks all of it.
def test_a_row_that_somebody_has_locked_stays_and_is_not_waited_for(engine: Engine) -> None:
    passes(engine, grant(1, "mine", "free", "locked"))
    age(engine)
    with engine.connect() as connection:
        lock = "UPDATE distlock_fence SET holder_id = holder_id WHERE id = :id"
        connection.execute(text(lock), {"id": key_of("shop", "locked")})
        assert prune(engine) == 1
    assert names(engine) == ["locked"]


def test_a_transaction_takes_away_a_few_at_a_time(engine: Engine) -> None:
    count = 2 * BATCH + 3
    rows = [
        {"id": key_of("shop", f"n{n}"), "namespace": "shop", "name": f"n{n}", "number": n}
        for n in range(count)
    ]
    columns = "(id, namespace, name, epoch, number, holder_id, passed_at)"
    insert = f"INSERT INTO distlock_fence {columns} VALUES (:id, :namespace, :name, 1, :number, '', 1)"
    with engine.begin() as connection:
        connection.execute(text(insert), rows)
    assert fenced_sessions.prune(engine, "default", 30, dry_run=True) == count == len(names(engine))
    assert prune(engine) == count
    with engine.connect() as connection:
        [left] = connection.execute(text("SELECT id, epoch, number FROM distlock_fence"))
    assert tuple(left) == (floor_of("shop")[0], 1, count - 1)


@at_every_level
def test_under_load_no_piece_is_sold_twice_and_nobody_fails(engine: Engine, strict: Engine) -> None:
    """Each row is pruned as soon as it is free: between two sales of its name, and in the middle of one."""
    locks = DummyLocks("shop")
    with strict.connect() as connection:
        serializable = connection.get_isolation_level() == "SERIALIZABLE"

    def sell(_: int) -> int:
        for _ in range(200):
            try:
                with locks.lock("product_1") as held, Session(strict) as session:
                    with fenced_sessions.fenced(session, strict, held, lambda: 30.0):
                        qty = int(session.execute(text("SELECT qty FROM stock")).scalar_one())
                        if qty:
                            session.execute(text("UPDATE stock SET qty = :n"), {"n": qty - 1})
                        session.commit()
                    return int(qty > 0)
            except Overtaken:
                continue  # A later number was there first, as without a prune.
            except DBAPIError as error:
                # Serializable transactions may fail for no good reason, also without a prune:
                # https://www.postgresql.org/docs/current/transaction-iso.html
                if not serializable or trouble(error) != "again":
                    raise
        raise AssertionError

    sold = pruned = 0
    with ThreadPoolExecutor(4) as pool:
        for _ in range(STOCK // 4 + 2):
            sales = [pool.submit(sell, one) for one in range(4)]
            while not all(sale.done() for sale in sales):
                pruned += prune(strict, days=0)
            sold += sum(sale.result() for sale in sales)
            pruned += prune(strict, days=0)
    assert sold == STOCK
    assert pruned > 0


@on("mariadb")  # Elsewhere nobody waits for a reader.
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_deadlock_with_the_site_while_it_looks_is_not_the_end(engine: Engine, dry_run: bool) -> None:
    strict = create_engine(engine.url, isolation_level="SERIALIZABLE")
    passes(engine, grant(1, "mine", "a", "b"))
    age(engine)
    first, last = sorted(key_of("shop", name) for name in "ab")
    change = text("UPDATE distlock_fence SET holder_id = 'site' WHERE id = :id")
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as site:
            # The transaction that has changed more is not the one that is ended.
            site.execute(text("UPDATE stock SET qty = qty + 1"))
            site.execute(change, {"id": last})
            pruned = pool.submit(fenced_sessions.prune, strict, "default", 30, dry_run=dry_run)
            until_it_waits(engine)
            site.execute(change, {"id": first})
        assert pruned.result(60) == 2
    assert len(names(engine)) == (2 if dry_run else 0)
    strict.dispose()


@pytest.mark.parametrize("word", ["prune", "prune --dry-run"])
def test_the_commands_of_both_frameworks_do_it(word: str, engine: Engine, using: str) -> None:
    taken = "would be taken" if "dry" in word else "taken"
    for command in (django_command(using), lambda *words: flask_command(engine, *words)):
        passes(engine, grant(5, "mine", "product_1"))
        age(engine, 8)
        assert command(*word.split()) == f"0 rows of names that nobody has locked for 30 days {taken} away.\n"
        said = command(*word.split(), "--older-than", "7")
        assert said == f"1 row of names that nobody has locked for 7 days {taken} away.\n"
        assert names(engine) == (["product_1"] if "dry" in word else [])
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM distlock_fence"))


def django_command(using: str) -> Callable[..., str]:
    def command(*words: str) -> str:
        out = StringIO()
        call_command("distlock", *words, "--database", using, stdout=out)
        return out.getvalue()

    return command


def test_what_can_t_be_pruned_is_said(engine: Engine, using: str) -> None:
    with pytest.raises(CommandError, match=r"--older-than -1\.0 has to be a number of days"):
        call_command("distlock", "prune", "--older-than", "-1", "--database", using)
    with pytest.raises(CommandError, match="names no database of DATABASES"):
        call_command("distlock", "prune", "--database", "nowhere")
    assert "There is no bind 'archive'" in flask_command(engine, "prune", "--bind", "archive")
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE distlock_fence"))
    with pytest.raises(CommandError, match=r"Run: python manage\.py migrate distlock --database fenced"):
        call_command("distlock", "prune", "--database", using)
    assert "Run: flask distlock create-table" in flask_command(engine, "prune")
    with pytest.raises(DBAPIError, match="unable to open database file"):
        prune(create_engine("sqlite:////nowhere/shop.sqlite3"))
    for days in (float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="days, 0 or more"):
            prune(engine, days=days)


@pytest.fixture(params=["django", "flask"])
def pair(request: pytest.FixtureRequest, databases: Databases, redis_server: RedisServer) -> Iterator[Any]:
    database = databases("postgresql", "pruned")
    a = Order(request.param, database, redis_server.url, "a", True, SHORT)
    b = Order(request.param, database, redis_server.url, "b", True, LONG)
    stock = Stock(database)
    with started(a, b) as (one, other):
        yield Pair(one, other, stock), database
    stock.close()


def test_a_holder_that_was_stopped_while_its_row_was_pruned_sells_nothing(pair: tuple[Pair, str]) -> None:
    """It holds the lock, as it believes, and its row is gone when it comes to pass it."""
    shop, database = pair
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    shop.stop_at("before the fence")
    assert shop.sell() == SOLD
    age(engine)
    assert prune(engine) == 1
    assert shop.wake() == LOST
    assert shop.stock.sellers() == "b"
    with engine.connect() as connection:
        # It did not even pass: the floor is all that is there.
        assert connection.execute(text("SELECT count(*) FROM distlock_fence")).scalar_one() == 1
    engine.dispose()
