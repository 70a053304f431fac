"""The ways of `bench.web.django_views` in Flask: the same rows, and one transaction for each sale."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import redis
from flask import Flask
from sqlalchemy import CursorResult, select, text, update

from bench.locks import MOST, PATIENCE, TTL
from bench.web import TIMEOUT
from demo_shop import ledger
from demo_shop.flask_shop.selling import SHOP, db
from demo_shop.tables import Product, Purchase
from flask_distlock import DistLock, distributed_lock

app = Flask(__name__)
app.config["DISTLOCK"] = {"default": {**SHOP.distlock()["default"], "TIMEOUT": TIMEOUT}}
app.config["SQLALCHEMY_DATABASE_URI"] = ledger.database_url(SHOP.database)
# There is a connection for each thread of gunicorn.
app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": 64}
db.init_app(app)
DistLock(app)
REDIS = redis.Redis.from_url(SHOP.lock, max_connections=MOST)

Answer = str | tuple[str, int]


def order(sku: int, seen: int) -> Answer:
    db.session.add(
        Purchase(
            product_id=sku,
            order_number=str(uuid.uuid4()),
            instance=SHOP.instance,
            stock_seen=seen,
            created_at=datetime.now(UTC),
        )
    )
    db.session.commit()
    return "sold"


def sell(sku: int, for_update: bool = False) -> Answer:
    """Read the stock, check it, and write it and an order."""
    found = select(Product).where(Product.id == sku)
    product = db.session.scalars(found.with_for_update() if for_update else found).one()
    if product.stock < 1:
        return "sold out", 409
    seen = product.stock
    product.stock = seen - 1
    return order(sku, seen)


@app.post("/distlock/<int:sku>")
@distributed_lock("product_<sku>")
def locked(sku: int) -> Answer:
    return sell(sku)


@app.post("/distlock-fence/<int:sku>")
@distributed_lock("product_<sku>", fence=True)
def fenced(sku: int) -> Answer:
    return sell(sku)


@app.post("/distlock-batch/<int:sku>")
@distributed_lock("product_<sku>", fence=True, batch=32)
def in_batches(sku: int) -> Answer:
    return sell(sku)


@app.post("/redis-py/<int:sku>")
def with_redis_py(sku: int) -> Answer:
    with REDIS.lock(f"redis-py:product_{sku}", timeout=TTL, blocking_timeout=PATIENCE):
        return sell(sku)


@app.post("/for-update/<int:sku>")
def for_update(sku: int) -> Answer:
    return sell(sku, for_update=True)


@app.post("/advisory/<int:sku>")
def advisory(sku: int) -> Answer:
    db.session.execute(text("SELECT pg_advisory_xact_lock(:sku)"), {"sku": sku})
    return sell(sku)


@app.post("/conditional/<int:sku>")
def conditional(sku: int) -> Answer:
    """Check and write in one statement."""
    left = update(Product).where(Product.id == sku, Product.stock >= 1).values(stock=Product.stock - 1)
    done = db.session.execute(left, execution_options={"synchronize_session": False})
    assert isinstance(done, CursorResult)
    return order(sku, 0) if done.rowcount else ("sold out", 409)


@app.get("/products/<int:sku>")
def show(sku: int) -> Answer:
    return str(db.session.get_one(Product, sku).stock)
