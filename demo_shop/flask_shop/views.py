"""The views of the Flask shop. The last two are taken from articles about overselling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from flask import Blueprint, Response, jsonify, make_response, render_template, request
from sqlalchemy import func, select

from demo_shop import remote_services
from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.flask_shop.selling import SHOP, WAYS, db, key_name, once, refuse, subtract
from demo_shop.guards import GUARDS, guarded
from demo_shop.sale import (
    PRODUCT_ID,
    OrderLine,
    Refusal,
    no_goods,
    no_such_product,
    product_names,
    read_cart,
    read_id,
)
from demo_shop.storefront import choices
from demo_shop.tables import Product, Purchase
from flask_distlock import distributed_lock

shop = Blueprint("shop", __name__)
sell = WAYS[GUARDS[SHOP.guard].way]


def product_name(id: int) -> Iterable[str]:
    return [f"product_{id}"]


def cart_names(*_: object) -> Iterable[str]:
    return product_names(read_cart(request.get_data()))


def reduce_stock_with(shop: Configuration, fence: bool | None = None) -> Callable[..., Response]:
    """Return the view that sells one unit under the guard of *shop*."""
    sell = WAYS[GUARDS[shop.guard].way]

    @guarded(shop, distributed_lock("product_<id>", key_name, fence=fence), product_name, refuse)
    @once
    def reduce_stock(id: int) -> Response:
        """Sell one unit."""
        return jsonify(words.bought(SHOP, sell([OrderLine(id)])))

    return reduce_stock


shop.post("/products/<int:id>/reduce")(reduce_stock_with(SHOP))
for slug, choice in choices(SHOP).items():
    # The page offers each of these views, which differ in their guards.
    view = reduce_stock_with(choice.furnish(SHOP), choice.fence)
    shop.add_url_rule(f"/products/<int:id>/reduce/{slug}", f"reduce-{slug}", view, methods=["POST"])


@shop.post("/checkout")
@guarded(SHOP, distributed_lock("product_<int:json.lines[].sku>", key_name), cart_names, refuse)
@once
def checkout() -> Response:
    """Sell all of a cart, or nothing."""
    return jsonify(words.bought(SHOP, sell(read_cart(request.get_data()))))


@shop.get("/products/<int:id>")
def show_product(id: int) -> Response:
    product = db.session.get(Product, id)
    return jsonify(describe(product)) if product else refuse(no_such_product())


@shop.get("/")
def storefront() -> str:
    product = db.session.get_one(Product, PRODUCT_ID)
    return render_template("storefront.html", product=describe(product), page=words.page(SHOP))


def describe(product: Product) -> dict[str, object]:
    shelf = db.session.scalars(select(Product).order_by(Product.id))
    sold = db.session.scalar(select(func.count(Purchase.id)).where(Purchase.product_id == product.id))
    recent = db.session.scalars(select(Purchase).order_by(Purchase.id.desc()).limit(words.RECENT))
    return words.describe(SHOP, product, shelf, sold or 0, recent)


# These views are as the articles describe them, but with the guard of this shop.
log = logging.getLogger("shop")
article = Blueprint("article", __name__)
# The article subtracts in the database. A guard that needs another way of writing has it here, too.
take = subtract if sell is WAYS["read_and_write"] else sell


def stock_name() -> Iterable[str]:
    return [f"product_{read_id(request.args.get('id'))}"]


def goods_name() -> Iterable[str]:
    return [remote_services.GOODS]


@article.get("/stock/reduce")
@guarded(SHOP, distributed_lock("product_<int:query.id>"), stock_name, refuse)
def reduce_stock() -> Response:
    """Answer ``GET /stock/reduce?id=1`` with OK to all buyers; only the log says which buyers got nothing."""
    line = OrderLine(read_id(request.args.get("id")))
    try:
        take([line])
        db.session.commit()
    except Refusal as refusal:
        db.session.rollback()
        log.info("product %s: %s", line.sku, refusal)
    return make_response("OK")


@article.get("/kill")
@guarded(SHOP, distributed_lock(remote_services.GOODS), goods_name, refuse)
def kill() -> Response:
    if not SHOP.goods:
        raise no_goods()
    return make_response(remote_services.kill(SHOP))
