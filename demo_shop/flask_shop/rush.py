"""One product that all buyers want, in Flask, sold in five ways.

Each view is whole, to be read and copied by itself. All write the same two rows: the stock, and an order.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify, make_response
from sqlalchemy import CursorResult, update

from demo_shop.flask_shop.selling import SHOP, db
from demo_shop.tables import Product, Purchase
from flask_distlock import distributed_lock

rush = Blueprint("rush", __name__, url_prefix="/rush")


@rush.post("/unlocked/<int:id>")
def unlocked(id: int) -> Response:
    product = db.get_or_404(Product, id)
    if product.stock < 1:
        return sold_out()
    product.stock -= 1
    receipt = order(id, unit=product.stock + 1)
    db.session.commit()
    return receipt


@rush.post("/conditional/<int:id>")
def conditional(id: int) -> Response:
    enough = update(Product).where(Product.id == id, Product.stock >= 1)
    done = db.session.execute(enough.values(stock=Product.stock - 1))
    assert isinstance(done, CursorResult)
    if not done.rowcount:
        return sold_out()
    receipt = order(id, unit=0)  # The view does not read which unit it sells.
    db.session.commit()
    return receipt


@rush.post("/for_update/<int:id>")
def for_update(id: int) -> Response:
    product = db.session.get_one(Product, id, with_for_update=True)
    if product.stock < 1:
        return sold_out()
    product.stock -= 1
    receipt = order(id, unit=product.stock + 1)
    db.session.commit()
    return receipt


@rush.post("/locked/<int:id>")
@distributed_lock("product_<id>")
def locked(id: int) -> Response:
    product = db.get_or_404(Product, id)
    if product.stock < 1:
        return sold_out()
    product.stock -= 1
    receipt = order(id, unit=product.stock + 1)
    db.session.commit()
    return receipt


@rush.post("/batched/<int:id>")
@distributed_lock("product_<id>", fence=True, batch=32)
def batched(id: int) -> Response:
    product = db.get_or_404(Product, id)
    if product.stock < 1:
        return sold_out()
    product.stock -= 1
    receipt = order(id, unit=product.stock + 1)
    db.session.commit()
    return receipt


def order(id: int, unit: int) -> Response:
    """Write the order. The caller commits it together with the stock."""
    number = str(uuid.uuid4())
    now = datetime.now(UTC)
    db.session.add(
        Purchase(product_id=id, order_number=number, instance=SHOP.instance, stock_seen=unit, created_at=now)
    )
    return jsonify(order=number, instance=SHOP.instance)


def sold_out() -> Response:
    db.session.rollback()
    return make_response(jsonify(code="sold_out", title="Sold out"), 409)
