"""The Flask shop. What gunicorn serves: ``demo_shop.flask_shop:app``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from flask import Flask, Response, jsonify, make_response, render_template
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import func, select

from demo_shop import ledger
from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.guards import guarded
from demo_shop.tables import Base, Product, Purchase
from flask_distlock import DistLock, distributed_lock

SHOP = Configuration.from_environment()


app = Flask(__name__, template_folder=str(Path(__file__).parent))
app.config["DISTLOCK"] = SHOP.distlock()
app.config["SQLALCHEMY_DATABASE_URI"] = ledger.database_url(SHOP.database)
# As many connections as gunicorn has threads: a purchase waits for the lock, never for a connection.
app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": 64} | ledger.isolation(SHOP.database)
db = SQLAlchemy(app, metadata=Base.metadata)
locks = DistLock()
locks.init_app(app)
with app.app_context():
    ledger.prepare_sqlite(db.engine)


@app.post("/products/<int:id>/reduce")
@guarded(SHOP.guard, distributed_lock("product_<id>"))
def reduce_stock(id: int) -> Response:
    """Sell one unit: read the stock, think, write what was read minus one. Only a lock makes this safe."""
    product = db.session.get(Product, id)
    if product is None:
        return answer(404, words.NO_SUCH_PRODUCT)
    stock = product.stock
    if stock <= 0:
        return answer(409, words.SOLD_OUT)
    time.sleep(SHOP.pause)
    product.stock = stock - 1
    order = Purchase(
        product_id=id,
        order_number=str(uuid.uuid4()),
        instance=SHOP.instance,
        stock_seen=stock,
        created_at=datetime.now(UTC),
    )
    db.session.add(order)
    db.session.commit()
    return answer(200, words.bought(SHOP, order))


@app.get("/products/<int:id>")
def show_product(id: int) -> Response:
    product = db.session.get(Product, id)
    return answer(200, describe(product)) if product else answer(404, words.NO_SUCH_PRODUCT)


@app.get("/")
def storefront() -> str:
    product = db.session.get_one(Product, ledger.PRODUCT_ID)
    return render_template("storefront.html", product=describe(product))


@app.after_request
def name_instance(response: Response) -> Response:
    response.headers["X-Instance"] = SHOP.instance
    return response


def answer(status: int, said: Mapping[str, object]) -> Response:
    return make_response(jsonify(said), status)


def describe(product: Product) -> dict[str, object]:
    orders = select(Purchase).where(Purchase.product_id == product.id)
    sold = db.session.scalar(select(func.count()).select_from(orders.subquery()))
    recent = db.session.scalars(orders.order_by(Purchase.id.desc()).limit(words.RECENT))
    return words.describe(SHOP, product, sold or 0, recent)
