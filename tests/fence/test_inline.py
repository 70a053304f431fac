"""The fence in the row itself: a stale holder's UPDATE changes nothing, on three databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from django.db import connections, models
from django.db.models import F
from sqlalchemy import CursorResult, Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from distlock.grants.grant import Fence
from distlock.web.settings.dummy import DummyGrant
from django_distlock.inline import FencedModel
from flask_distlock.inline import FencedMixin, fenced_update


class Product(FencedModel):
    stock = models.IntegerField()

    class Meta:
        app_label = "fence_tests"
        db_table = "fenced_product"


class Base(DeclarativeBase):
    pass


class Row(FencedMixin, Base):
    __tablename__ = "fenced_product"

    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]


def grant(number: int, epoch: int = 1) -> DummyGrant:
    return DummyGrant("shop", {"product_1": Fence(epoch, number)})


class Django:
    def __init__(self, using: str) -> None:
        self.rows = Product.objects.using(using)

    def buy(self, holder: DummyGrant, pieces: int = 1, name: str | None = None) -> int:
        rows = self.rows.filter(pk=1, stock__gte=pieces)
        return rows.fenced_update(holder, name, stock=F("stock") - pieces)

    def stock(self) -> int:
        return self.rows.get(pk=1).stock


class SQLAlchemy:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def buy(self, holder: DummyGrant, pieces: int = 1, name: str | None = None) -> int:
        statement = fenced_update(Row, holder, name).where(Row.id == 1, Row.stock >= pieces)
        with Session(self.engine) as session, session.begin():
            result = session.execute(statement.values(stock=Row.stock - pieces))
            return cast("CursorResult[None]", result).rowcount

    def stock(self) -> int:
        with Session(self.engine) as session:
            return session.get_one(Row, 1).stock


@pytest.fixture(params=["django", "sqlalchemy"])
def shop(request: pytest.FixtureRequest, using: str, engine: Engine) -> Iterator[Django | SQLAlchemy]:
    """Each face buys what the other has put there: the columns are the same."""
    if request.param == "django":
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add(Row(id=1, stock=10))
        yield Django(using)
        Base.metadata.drop_all(engine)
        return
    with connections[using].schema_editor() as editor:
        editor.create_model(Product)
    Product.objects.using(using).create(pk=1, stock=10)
    yield SQLAlchemy(engine)
    with connections[using].schema_editor() as editor:
        editor.delete_model(Product)


def test_a_stale_holder_changes_no_row(shop: Django | SQLAlchemy) -> None:
    assert shop.buy(grant(33)) == 1
    assert shop.buy(grant(34)) == 1
    assert shop.buy(grant(33)) == 0
    assert shop.stock() == 8


def test_a_holder_may_write_again(shop: Django | SQLAlchemy) -> None:
    assert [shop.buy(grant(33)), shop.buy(grant(33))] == [1, 1]
    assert shop.stock() == 8


def test_a_later_era_outweighs_every_number(shop: Django | SQLAlchemy) -> None:
    assert shop.buy(grant(2**62)) == 1
    assert shop.buy(grant(1, epoch=2)) == 1
    assert shop.buy(grant(2**62 + 1)) == 0
    assert shop.stock() == 8


def test_what_is_sold_out_changes_no_row_either(shop: Django | SQLAlchemy) -> None:
    assert shop.buy(grant(33), pieces=11) == 0
    assert shop.stock() == 10


def test_of_several_fences_one_is_named(shop: Django | SQLAlchemy) -> None:
    cart = DummyGrant("shop", {"product_1": Fence(1, 33), "product_2": Fence(1, 7)})
    with pytest.raises(AttributeError, match="2 names have 2 fences"):
        shop.buy(cart)
    assert shop.buy(cart, name="product_1") == 1
    assert shop.buy(grant(32)) == 0
