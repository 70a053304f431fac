"""Reports that read while purchases write, and a payment gateway that takes five at a time, in Flask.

Each guarded view stands beside the same view without the guard.
"""

from __future__ import annotations

import time

from flask import Blueprint, Response, jsonify, make_response
from sqlalchemy import func, select

from demo_shop import remote_services
from demo_shop.flask_shop.rush import unlocked
from demo_shop.flask_shop.selling import SHOP, db
from demo_shop.sale import PRODUCT_ID
from demo_shop.tables import Product, Purchase
from flask_distlock import distributed_lock

readers = Blueprint("readers", __name__, url_prefix="/readers")


#: The unlocked purchase, under a lock of all products.
purchase = readers.post("/purchase/<int:id>")(distributed_lock("catalogue")(unlocked))


@readers.get("/report")
def report() -> Response:
    return add_up()


@readers.get("/report/shared")
@distributed_lock("catalogue", mode="shared")
def shared_report() -> Response:
    return add_up()


def add_up() -> Response:
    """Read the stock of each product in turn, then the orders.

    Without the lock, a purchase meanwhile may be seen by half: its order, but not the stock that it took.
    """
    began, stock = time.time(), 0
    for number in range(PRODUCT_ID, PRODUCT_ID + SHOP.products):
        stock += db.session.scalar(select(Product.stock).where(Product.id == number)) or 0
        time.sleep(SHOP.pause)
    sold = db.session.scalar(select(func.count(Purchase.id)))
    return jsonify(stock=stock, sold=sold, began=began, ended=time.time())


@readers.post("/pay")
def pay() -> Response:
    return charge()


@readers.post("/pay/limited")
@distributed_lock("gateway", limit=remote_services.GATEWAY_LIMIT)
def limited_pay() -> Response:
    return charge()


def charge() -> Response:
    paid = remote_services.charge(SHOP)
    return make_response(jsonify(paid=paid), 200 if paid else 502)
