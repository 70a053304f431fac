"""How the Flask shop writes a sale: in several ways, and once for each ``Idempotency-Key``."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flask import Response, jsonify, make_response, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import CursorResult, select, update

from demo_shop.guards import configured
from demo_shop.sale import (
    KEY_HEADER,
    REPLAYED,
    Asked,
    OrderLine,
    Receipt,
    Refusal,
    lock_names,
    no_such_product,
    overtaken,
    read_asked,
    sold_out,
)
from demo_shop.tables import Base, KeyTaken, Product, first_answer, keep_answer, look_up, record, write_answer

SHOP = configured()
db = SQLAlchemy(metadata=Base.metadata)
RETRIES = 100


def read_and_write(lines: Sequence[OrderLine]) -> Receipt:
    """Read the stock, pause, write what was read minus what is bought. Only a lock makes this safe."""
    products = look_up(db.session, select(Product), lines)
    time.sleep(SHOP.pause)
    return write(products, lines)


def subtract(lines: Sequence[OrderLine]) -> Receipt:
    """Read, check, and let the database subtract. Only a lock makes this safe."""
    seen = {sku: product.stock for sku, product in look_up(db.session, select(Product), lines).items()}
    time.sleep(SHOP.pause)
    for line in lines:
        changes(update(Product).where(Product.id == line.sku).values(stock=Product.stock - line.quantity))
    return record(db.session, SHOP.instance, lines, seen)


def for_update(lines: Sequence[OrderLine]) -> Receipt:
    """Let the database lock the rows from the read to COMMIT."""
    products = look_up(db.session, select(Product).order_by(Product.id).with_for_update(), lines)
    time.sleep(SHOP.pause)
    return write(products, lines)


def conditional(lines: Sequence[OrderLine]) -> Receipt:
    """Check and write the stock of a product in one statement."""
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


def optimistic(lines: Sequence[OrderLine]) -> Receipt:
    """Write if the version is the one that was read; otherwise begin again."""
    for _ in range(RETRIES):
        products = look_up(db.session, select(Product), lines)
        seen = {sku: product.stock for sku, product in products.items()}
        versions = {sku: product.version for sku, product in products.items()}
        time.sleep(SHOP.pause)
        if all(write_version(line, seen[line.sku], versions[line.sku]) for line in lines):
            return record(db.session, SHOP.instance, lines, seen)
        db.session.rollback()
        # The pause is random, so that not all try again at once.
        time.sleep(random.random() * SHOP.pause)
    raise overtaken()


def write_version(line: OrderLine, stock: int, version: int) -> bool:
    unchanged = update(Product).where(Product.id == line.sku, Product.version == version)
    return changes(unchanged.values(stock=stock - line.quantity, version=version + 1)) == 1


def write(products: Mapping[int, Product], lines: Sequence[OrderLine]) -> Receipt:
    seen = {sku: product.stock for sku, product in products.items()}
    for line in lines:
        products[line.sku].stock -= line.quantity
    # Write the stock before the order: the order's foreign key takes a shared lock on the product's row in
    # MySQL, and two purchases that share the row would deadlock when they write it.
    db.session.flush()
    return record(db.session, SHOP.instance, lines, seen)


def changes(statement: Any) -> int:
    done = db.session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(done, CursorResult)
    return done.rowcount


WAYS: dict[str, Callable[[Sequence[OrderLine]], Receipt]] = {
    way.__name__: way for way in (read_and_write, subtract, for_update, conditional, optimistic)
}


View = Callable[..., Response]


def key_name(*_: Any, **__: Any) -> Iterable[str]:
    return lock_names(request.headers.get(KEY_HEADER))


def once(view: View) -> View:
    """Decorate *view*: commit its changes, and keep its answer for repetitions, in one transaction.

    The lock's decorator has to be above this one.
    """

    @functools.wraps(view)
    def answer(**kwargs: Any) -> Response:
        same = (request.method, request.path, request.query_string, request.get_data())
        asked = read_asked(request.headers.get(KEY_HEADER), *same)
        if asked is None:
            response = view(**kwargs)
            db.session.commit()
            return response
        try:
            # Write the key before selling: without a lock, a repetition waits here for the first request.
            write_answer(db.session, asked)
            response = sell_or_refuse(view, kwargs)
            keep_answer(db.session, asked, response.status_code, response.get_data(as_text=True))
            db.session.commit()
        except KeyTaken:
            db.session.rollback()
            return replay(asked)
        return response

    return answer


def sell_or_refuse(view: View, kwargs: dict[str, Any]) -> Response:
    try:
        response = view(**kwargs)
    except Refusal as refusal:
        response = refuse(refusal)
    if response.status_code >= 400:
        # Undo changes that the view made before it refused, and the row of the key.
        db.session.rollback()
    return response


def replay(asked: Asked) -> Response:
    found = first_answer(db.session, asked)
    return Response(found.body, found.status, {REPLAYED: "true"}, content_type="application/json")


def refuse(refusal: Refusal) -> Response:
    return make_response(jsonify(refusal.said), refusal.status)
