"""The views of the Flask shop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import Blueprint, Response, jsonify, render_template, request
from sqlalchemy import func, select

from demo_shop import storefront as words
from demo_shop.choices import choices
from demo_shop.configuration import Configuration
from demo_shop.flask_shop.database import SHOP, db
from demo_shop.flask_shop.once import key_name, once, refuse
from demo_shop.flask_shop.selling import WAYS
from demo_shop.guards import GUARDS, guarded
from demo_shop.orders import PRODUCT_ID
from demo_shop.sale import Line, no_such_product, product_names, read_cart
from demo_shop.tables import Product, Purchase
from flask_distlock import distributed_lock

shop = Blueprint("shop", __name__)
sell = WAYS[GUARDS[SHOP.guard].way]


def product_name(id: int) -> Iterable[str]:
    return [f"product_{id}"]


def cart_names(*_: object) -> Iterable[str]:
    return product_names(read_cart(request.get_data()))


def reduce_stock_with(shop: Configuration, fence: bool | None = None) -> Callable[..., Response]:
    """The view that sells one unit, with the guard that *shop* names around it."""
    sell = WAYS[GUARDS[shop.guard].way]

    @guarded(shop, distributed_lock("product_<id>", key_name, fence=fence), product_name, refuse)
    @once
    def reduce_stock(id: int) -> Response:
        """Sell one unit."""
        return jsonify(words.bought(SHOP, sell([Line(id)])))

    return reduce_stock


shop.post("/products/<int:id>/reduce")(reduce_stock_with(SHOP))
for slug, choice in choices(SHOP).items():
    # Each has a guard of its own, for the page.
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
