"""How the Flask shop writes a sale: in several ways, of which the first two need a lock around them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import CursorResult, select, update

from demo_shop.flask_shop.database import SHOP, db
from demo_shop.rows import look_up, record
from demo_shop.sale import Line, Receipt, no_such_product, overtaken, sold_out
from demo_shop.tables import Product

RETRIES = 100


def read_and_write(lines: Sequence[Line]) -> Receipt:
    """Read the stock, think, write what was read minus what is bought. Only a lock makes this safe."""
    products = look_up(db.session, select(Product), lines)
    time.sleep(SHOP.pause)
    return write(products, lines)


def subtract(lines: Sequence[Line]) -> Receipt:
    """The article's way: read, check, and let the database subtract. Only a lock makes this safe."""
    seen = {sku: product.stock for sku, product in look_up(db.session, select(Product), lines).items()}
    time.sleep(SHOP.pause)
    for line in lines:
        changes(update(Product).where(Product.id == line.sku).values(stock=Product.stock - line.quantity))
    return record(db.session, SHOP.instance, lines, seen)


def for_update(lines: Sequence[Line]) -> Receipt:
    """The database locks the rows until COMMIT."""
    products = look_up(db.session, select(Product).order_by(Product.id).with_for_update(), lines)
    time.sleep(SHOP.pause)
    return write(products, lines)


def conditional(lines: Sequence[Line]) -> Receipt:
    """One statement checks and writes."""
    time.sleep(SHOP.pause)
    seen = {}
    for line in lines:
        enough = update(Product).where(Product.id == line.sku, Product.stock >= line.quantity)
        changed = changes(enough.values(stock=Product.stock - line.quantity))
        left = db.session.scalar(select(Product.stock).where(Product.id == line.sku))
        if left is None:
            raise no_such_product()
        if not changed:
            raise sold_out()
        seen[line.sku] = left + line.quantity
    return record(db.session, SHOP.instance, lines, seen)


def optimistic(lines: Sequence[Line]) -> Receipt:
    """A purchase that finds another version than it read begins again."""
    for _ in range(RETRIES):
        products = look_up(db.session, select(Product), lines)
        seen = {sku: product.stock for sku, product in products.items()}
        versions = {sku: product.version for sku, product in products.items()}
        time.sleep(SHOP.pause)
        if all(write_version(line, seen[line.sku], versions[line.sku]) for line in lines):
            return record(db.session, SHOP.instance, lines, seen)
        db.session.rollback()
        # Not all at once again.
        time.sleep(random.random() * SHOP.pause)
    raise overtaken()


def write_version(line: Line, stock: int, version: int) -> bool:
    unchanged = update(Product).where(Product.id == line.sku, Product.version == version)
    return changes(unchanged.values(stock=stock - line.quantity, version=version + 1)) == 1


def write(products: Mapping[int, Product], lines: Sequence[Line]) -> Receipt:
    seen = {sku: product.stock for sku, product in products.items()}
    for line in lines:
        products[line.sku].stock -= line.quantity
    # Before the order, which shares MySQL's lock on the product's row: two that share it can't both write.
    db.session.flush()
    return record(db.session, SHOP.instance, lines, seen)


def changes(statement: Any) -> int:
    done = db.session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(done, CursorResult)
    return done.rowcount


WAYS: dict[str, Callable[[Sequence[Line]], Receipt]] = {
    way.__name__: way for way in (read_and_write, subtract, for_update, conditional, optimistic)
}
