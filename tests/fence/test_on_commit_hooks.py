"""``on_commit`` hooks write after the COMMIT that the fence was passed for, while the lock is held still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpResponse
from django.urls import path
from sqlalchemy import Engine, text

from distlock.errors import BackendUnavailable, LockError, LockLost, LockTimeout, TooManyWaiters
from django_distlock import atomic, distributed_lock, locks
from tests.databases import Databases, on
from tests.fence.conftest import ALIAS, write_row
from tests.fence.instance import HOOKS, Order
from tests.fence.instances import Instance, Stock, started
from tests.fence.shops import Answered, DjangoShop, open_shop
from tests.redis_server import RedisServer

Overtake = Callable[[], None]


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def pair(
    request: pytest.FixtureRequest, databases: Databases, redis_server: RedisServer
) -> Iterator[tuple[Instance, Instance, Stock]]:
    """Two instances of one shop; the first one's lease is short."""
    database = databases(request.param, "hooks")
    a = Order("django", database, redis_server.url, "a", True, 0.9)
    b = Order("django", database, redis_server.url, "b", True, 30.0)
    stock = Stock(database)
    with started(a, b) as (one, other):
        yield one, other, stock
    stock.close()


def stop_at(point: str, hook: str, instance: Instance, stock: Stock) -> None:
    """Let *instance* go for the last piece, and stop it at *point*, where it goes on when it runs again."""
    stock.put(1)
    instance.tell(f"{hook} {point}")
    while (said := instance.says()) != f"at {point}":
        # On a busy machine so short a lease may be over by itself.
        assert said in {"answered 500", "answered 503 lock_lost"}
        instance.tell(f"{hook} {point}")
    instance.stop()
    instance.tell("go on")


@pytest.mark.fault("F03")
@pytest.mark.parametrize("hook", HOOKS)
def test_the_hook_of_a_holder_that_was_stopped_past_its_ttl_sells_nothing(
    pair: tuple[Instance, Instance, Stock], hook: str
) -> None:
    one, other, stock = pair
    stop_at("in the hook", hook, one, stock)
    other.tell(hook)
    assert other.says() == "answered 200"
    one.go_on()
    # The view has committed: a 503 would ask to do that once more.
    assert one.says() == ("answered 200" if hook == "robust" else "answered 500")
    assert (stock.sellers(), stock.left()) == ("b", 0)


def test_every_autocommit_statement_is_looked_at(pair: tuple[Instance, Instance, Stock]) -> None:
    one, other, stock = pair
    stop_at("between two statements", "autocommit", one, stock)
    other.tell("autocommit")
    # What the first one has written in autocommit is there for everybody.
    assert other.says() == "answered 409"
    one.go_on()
    assert one.says() == "answered 500"
    assert (stock.sellers(), stock.left()) == ("", 0)


@pytest.fixture(params=["a lock service", "rows"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str) -> Iterator[DjangoShop]:
    setting = {"BACKEND": "database", "LOCATION": ALIAS} if request.param == "rows" else {}
    with open_shop("django", engine, using, setting) as shop:
        assert isinstance(shop, DjangoShop)
        yield shop


@pytest.fixture
def overtake(engine: Engine) -> Overtake:
    def overtake() -> None:
        with engine.begin() as connection:
            connection.execute(text("UPDATE distlock_fence SET number = number * 2, holder_id = 'other'"))

    return overtake


def stock_of(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


def atomically(shop: DjangoShop) -> None:
    with transaction.atomic(using=shop.using):
        shop.write(3)


def by_a_manual_transaction(shop: DjangoShop) -> None:
    transaction.set_autocommit(False, using=shop.using)
    try:
        shop.write(3)
        transaction.commit(using=shop.using)
    finally:
        transaction.rollback(using=shop.using)
        transaction.set_autocommit(True, using=shop.using)


def by_the_second_manual_transaction(shop: DjangoShop) -> None:
    transaction.set_autocommit(False, using=shop.using)
    try:
        transaction.commit(using=shop.using)
        shop.write(3)
        transaction.commit(using=shop.using)
    finally:
        transaction.rollback(using=shop.using)
        transaction.set_autocommit(True, using=shop.using)


def by_a_block_in_the_second_manual_transaction(shop: DjangoShop) -> None:
    transaction.set_autocommit(False, using=shop.using)
    try:
        transaction.commit(using=shop.using)
        with transaction.atomic(using=shop.using):
            shop.write(3)
        transaction.commit(using=shop.using)
    finally:
        transaction.rollback(using=shop.using)
        transaction.set_autocommit(True, using=shop.using)


def in_a_savepoint(shop: DjangoShop) -> None:
    with transaction.atomic(using=shop.using), transaction.atomic(using=shop.using):
        shop.write(3)


def by_autocommit_that_is_set_again(shop: DjangoShop) -> None:
    """MariaDB commits a transaction that is open still; PostgreSQL's driver refuses to set it."""
    transaction.set_autocommit(False, using=shop.using)
    try:
        shop.write(3)
        if connections[ALIAS].vendor == "postgresql":
            transaction.commit(using=shop.using)
    finally:
        transaction.set_autocommit(True, using=shop.using)


def behind_another_guard(shop: DjangoShop) -> None:
    @distributed_lock("other", fence=shop.using)
    def other() -> None:
        shop.write(3)

    other()


def after_closing(shop: DjangoShop) -> None:
    connections.close_all()
    atomically(shop)


def after_closing_in_a_block(shop: DjangoShop) -> None:
    with transaction.atomic(using=shop.using):
        shop.execute("UPDATE stock SET qty = 7")
        connections.close_all()
    atomically(shop)


def after_closing_with_autocommit_off(shop: DjangoShop) -> None:
    transaction.set_autocommit(False, using=shop.using)
    shop.execute("UPDATE stock SET qty = 7")
    connections.close_all()
    atomically(shop)


KINDS = [
    atomically,
    by_a_manual_transaction,
    by_the_second_manual_transaction,
    by_a_block_in_the_second_manual_transaction,
    in_a_savepoint,
    by_autocommit_that_is_set_again,
    behind_another_guard,
    after_closing,
    after_closing_in_a_block,
    after_closing_with_autocommit_off,
]


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_transaction_a_hook_begins_passes_the_fence_again(
    shop: DjangoShop, engine: Engine, overtake: Overtake, kind: Callable[[DjangoShop], None]
) -> None:
    told: list[BaseException] = []

    def hook() -> None:
        overtake()
        with pytest.raises(LockLost, match="the hook is stopped") as caught:
            kind(shop)
        told.append(caught.value)

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop.serve(view)
    assert shop.post() == Answered(200)
    assert (len(told), stock_of(engine)) == (1, 7)


def test_a_block_in_a_later_manual_transaction_passes_the_fence_too(
    shop: DjangoShop, engine: Engine, overtake: Overtake
) -> None:
    def hook() -> None:
        transaction.set_autocommit(False, using=shop.using)
        try:
            transaction.commit(using=shop.using)
            overtake()
            with pytest.raises(LockLost, match="the hook is stopped"):
                atomically(shop)
            transaction.commit(using=shop.using)
        finally:
            transaction.rollback(using=shop.using)
            transaction.set_autocommit(True, using=shop.using)

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop.serve(view)
    assert shop.post() == Answered(200)
    assert stock_of(engine) == 7


@on("postgresql", "mariadb")  # On SQLite, a reader's transaction that writes keeps all writers out.
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_a_first_writer_overtakes_in_a_hook_commits_nothing(
    shop: DjangoShop, engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: Callable[[DjangoShop], None]
) -> None:
    write, errors = shop.write, list[LockLost]()

    def write_and_be_overtaken(qty: int) -> None:
        write(qty)
        # The row is still missing: the reader has passed without one.
        write_row(engine, 2**60)

    def hook() -> None:
        monkeypatch.setattr(shop, "write", write_and_be_overtaken)
        with pytest.raises(LockLost, match="the hook is stopped") as caught:
            kind(shop)
        errors.append(caught.value)

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop.serve(view, mode="shared", methods=["POST"])
    assert shop.post() == Answered(200)
    assert (len(errors), stock_of(engine)) == (1, 7)
    assert not {"set_autocommit", "_commit"} & set(vars(connections[ALIAS]))


@on("postgresql", "mariadb")
@pytest.mark.parametrize("number", [0, 1, 2**60])
def test_a_reader_that_a_first_writer_overtakes_between_two_statements_commits_nothing(
    shop: DjangoShop, engine: Engine, number: int
) -> None:
    errors: list[LockLost] = []

    def read_and_write() -> None:
        shop.read()
        write_row(engine, number, "other", "UPDATE stock SET qty = 1")
        shop.read()
        shop.write(7)
        transaction.commit(using=shop.using)

    def hook() -> None:
        transaction.set_autocommit(False, using=shop.using)
        try:
            with pytest.raises(LockLost, match="the hook is stopped") as caught:
                read_and_write()
            errors.append(caught.value)
        finally:
            transaction.rollback(using=shop.using)
            transaction.set_autocommit(True, using=shop.using)

    shop.serve(lambda: shop.after_commit(hook), mode="shared", methods=["POST"])
    assert shop.post() == Answered(200)
    assert (len(errors), stock_of(engine)) == (1, 1)


@on("postgresql", "mariadb")  # SQLite refuses shared rows.
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_of_a_reader_that_is_not_overtaken_writes(
    shop: DjangoShop, engine: Engine, kind: Callable[[DjangoShop], None]
) -> None:
    shop.serve(lambda: shop.after_commit(lambda: kind(shop)), mode="shared", methods=["POST"])
    assert shop.post() == Answered(200)
    assert stock_of(engine) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_is_not_overtaken_writes(
    shop: DjangoShop, engine: Engine, kind: Callable[[DjangoShop], None]
) -> None:
    read: list[int] = []

    def hook() -> None:
        read.append(shop.read())
        kind(shop)
        read.append(shop.read())

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop.serve(view)
    connection = connections[ALIAS]
    connection.ensure_connection()
    wrappers = connection.execute_wrappers[:]
    assert shop.post() == Answered(200)
    assert (read, stock_of(engine)) == ([7, 3], 3)
    # Nothing of it stays behind on the connection.
    assert ("set_autocommit" in vars(connection), connection.execute_wrappers) == (False, wrappers)


def test_an_autocommit_statement_hears_from_the_database_that_somebody_came_after(
    engine: Engine, using: str, overtake: Overtake
) -> None:
    with open_shop("django", engine, using, {}) as shop:

        def hook() -> None:
            overtake()
            shop.write(3)

        def view() -> None:
            shop.write(7)
            shop.after_commit(hook)

        shop.serve(view)
        with pytest.raises(LockLost):
            shop.post()
        assert stock_of(engine) == 7


@on("postgresql", "mariadb")  # In SQLite nobody else writes meanwhile.
def test_a_row_that_somebody_keeps_after_the_commit_is_a_lost_lock_and_ends_in_time(
    shop: DjangoShop, engine: Engine
) -> None:
    told: list[str] = []

    def hook() -> None:
        with engine.connect() as later:
            later.execute(text("UPDATE distlock_fence SET holder_id = 'other'"))
            with pytest.raises(LockLost) as caught:
                atomically(shop)
            told.append(str(caught.value))
            later.rollback()

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop.serve(view, timeout=0.3)
    assert shop.post() == Answered(200)
    assert len(told) == 1
    assert stock_of(engine) == 7


@pytest.mark.parametrize("error", [LockTimeout, LockLost, TooManyWaiters, BackendUnavailable])
@pytest.mark.parametrize("guarded", ["fenced", "not fenced", "by the middleware"])
def test_what_a_hook_raises_is_no_answer_that_asks_to_try_again(
    engine: Engine, using: str, error: type[LockError], guarded: str, settings: Any
) -> None:
    settings.MIDDLEWARE = ["django_distlock.middleware.DistlockMiddleware"]

    def hook() -> None:
        raise error("a lock of the hook's own")

    def view(request: object = None, id: int = 1) -> HttpResponse:
        with transaction.atomic(using=using):
            shop.write(7)
            shop.after_commit(hook)
        return HttpResponse()

    with open_shop("django", engine, using, {}) as shop:
        assert isinstance(shop, DjangoShop)
        if guarded == "by the middleware":
            shop.urls.urlpatterns.append(path("product/<int:id>", view))
        else:
            shop.serve(view, fence=using if guarded == "fenced" else False)
        with pytest.raises(error):
            shop.post()
        assert stock_of(engine) == 7


def test_a_lock_that_locks_nothing_has_the_fence_of_its_hooks_all_the_same(
    engine: Engine, using: str, overtake: Overtake
) -> None:
    with open_shop("django", engine, using, {"BACKEND": "dummy"}) as shop:
        assert isinstance(shop, DjangoShop)

        def hook() -> None:
            atomically(shop)
            overtake()
            with pytest.raises(LockLost):
                atomically(shop)

        shop.serve(lambda: shop.after_commit(hook))
        assert shop.post() == Answered(200)


def test_a_transaction_of_ones_own_has_hooks_too(engine: Engine, using: str, overtake: Overtake) -> None:
    with open_shop("django", engine, using, {}) as shop:
        assert isinstance(shop, DjangoShop)

        def hook() -> None:
            overtake()
            atomically(shop)

        def sell() -> None:
            with locks.lock("product_1") as grant, atomic(grant, using=using):
                shop.write(7)
                shop.after_commit(hook)

        with pytest.raises(LockLost):
            sell()
        assert stock_of(engine) == 7
