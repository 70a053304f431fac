"""MariaDB and MySQL end a transaction by a deadlock, and begin another one with what is sent next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError as DjangoError
from django.db import transaction
from django.db.transaction import TransactionManagementError
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import flask_distlock
from distlock import LockLost
from tests.databases import on
from tests.fence.conftest import STOCK, write_row
from tests.fence.dummies import dummy_locks
from tests.fence.shops import Answered, Shop, open_shop
from tests.fence.test_passing import until_it_waits

pytestmark = on("mariadb")


@pytest.fixture(autouse=True)
def sold_before(engine: Engine) -> None:
    """There is a row, which a ROLLBACK does not take away."""
    write_row(engine, 0)


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock WHERE id = 1")).scalar_one())


def swallow_a_deadlock(engine: Engine, execute: Callable[[str], object]) -> None:
    """*execute* runs into it, and its caller goes on."""
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO stock VALUES (2, 0), (3, 0)"))
    execute("SELECT qty FROM stock WHERE id = 2 FOR UPDATE")

    def another() -> None:
        with engine.begin() as connection:
            # The transaction that has written more is not the victim.
            for row in range(4, 40):
                connection.execute(text("INSERT INTO stock VALUES (:id, 0)"), {"id": row})
            connection.execute(text("UPDATE stock SET qty = 1 WHERE id = 3"))
            connection.execute(text("UPDATE stock SET qty = 1 WHERE id = 2"))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(another)
        until_it_waits(engine)
        with pytest.raises((DjangoError, OperationalError), match="1213"):
            execute("SELECT qty FROM stock WHERE id = 3 FOR UPDATE")
        done.result()
    with engine.connect() as connection:
        # The row of the fence was let go.
        assert connection.execute(text("SELECT 1 FROM distlock_fence FOR UPDATE SKIP LOCKED")).all()


@pytest.mark.fault("F35")
@pytest.mark.parametrize("face", ["django", "flask"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_view_that_goes_on_commits_nothing(face: str, goes_on: bool, engine: Engine, using: str) -> None:
    def view() -> None:
        shop.write(7)
        swallow_a_deadlock(engine, shop.execute)
        if goes_on:
            # Django says at once that there is no transaction any more.
            with contextlib.suppress(TransactionManagementError):
                shop.write(3)

    shop: Shop
    with open_shop(face, engine, using, {"BACKEND": "dummy"}) as shop:
        shop.serve(view)
        assert shop.post() == Answered(503, "lock_lost")
    assert stock(engine) == STOCK


def test_what_rolls_back_and_begins_anew_is_fenced_again(engine: Engine, using: str) -> None:
    def view() -> None:
        swallow_a_deadlock(engine, shop.execute)
        shop.db.session.rollback()
        shop.write(3)

    shop: Any
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        shop.serve(view)
        assert shop.post() == Answered(200)
    assert stock(engine) == 3


def test_ones_own_transaction_commits_nothing_either(engine: Engine) -> None:
    def buy(session: Session) -> None:
        with dummy_locks().lock("product_1") as grant, flask_distlock.transaction(grant, session):
            swallow_a_deadlock(engine, lambda statement: session.execute(text(statement)))
            session.execute(text("UPDATE stock SET qty = 3 WHERE id = 1"))

    with Session(engine) as session, pytest.raises(LockLost, match="because of a deadlock"):
        buy(session)
    assert stock(engine) == STOCK


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_hook_that_goes_on_commits_nothing_either(goes_on: bool, engine: Engine, using: str) -> None:
    told: list[str] = []

    @transaction.atomic(using=using)
    def swallow() -> None:
        shop.write(3)
        swallow_a_deadlock(engine, shop.execute)
        if goes_on:
            with contextlib.suppress(TransactionManagementError):
                shop.write(4)

    def hook() -> None:
        with pytest.raises(LockLost) as caught:
            swallow()
        told.append(str(caught.value))
        # The next one begins anew.
        with transaction.atomic(using=using):
            shop.write(5)

    def view() -> None:
        shop.write(7)
        shop.after_commit(hook)

    shop: Shop
    with open_shop("django", engine, using, {"BACKEND": "dummy"}) as shop:
        shop.serve(view)
        assert shop.post() == Answered(200)
    assert "because of a deadlock" in told[0]
    assert stock(engine) == 5
