"""The article's ``/kill``: a stock that is in Redis, read and written back. Only a lock makes this safe."""

from __future__ import annotations

import functools
import json
import time
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from demo_shop.configuration import Configuration
from demo_shop.orders import PRODUCT_ID, Ledger, Order

if TYPE_CHECKING:
    from redis import Redis

#: The article's key, and where we note what was sold: the articles count answers.
GOODS, ORDERS = "goods", "goods:orders"
SOLD_OUT, CONGRATULATIONS = "sold out", "congratulations"


@functools.cache
def connect(url: str) -> Redis:
    # It takes a while to load, and only a shop with /kill needs it.
    from redis import Redis

    return Redis.from_url(url)


def kill(shop: Configuration) -> str:
    """Read, think, write what was read minus one."""
    redis = connect(shop.goods)
    amount = int(redis.get(GOODS) or 0)
    if amount <= 0:
        return SOLD_OUT
    time.sleep(shop.kill_pause)
    redis.set(GOODS, amount - 1)
    order = Order(str(uuid.uuid4()), PRODUCT_ID, 1, shop.instance, amount, datetime.now(UTC))
    redis.rpush(ORDERS, json.dumps(asdict(order), default=datetime.isoformat))
    return CONGRATULATIONS


def open_sale(url: str, stock: int) -> None:
    connect(url).delete(ORDERS)
    connect(url).set(GOODS, stock)


def read_ledger(url: str) -> Ledger:
    found = (json.loads(row) for row in connect(url).lrange(ORDERS, 0, -1))
    orders = (Order(**row | {"created_at": datetime.fromisoformat(row["created_at"])}) for row in found)
    left = int(connect(url).get(GOODS) or 0)
    return Ledger({PRODUCT_ID: left}, tuple(sorted(orders, key=lambda order: order.created_at)))
