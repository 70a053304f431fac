"""Services that some views call besides the database: a stock in Redis, and a payment gateway."""

from __future__ import annotations

import functools
import json
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from demo_shop.configuration import Configuration
from demo_shop.sale import PRODUCT_ID, Ledger, Order

if TYPE_CHECKING:
    from redis import Redis

#: The keys in Redis of the stock that ``/kill`` sells, and of the list of its sales.
GOODS, ORDERS = "goods", "goods:orders"
SOLD_OUT, CONGRATULATIONS = "sold out", "congratulations"


@functools.cache
def connect_goods(url: str) -> Redis:
    # Import redis here: it takes a while to load, and only a shop with /kill needs it.
    from redis import Redis

    return Redis.from_url(url)


def kill(shop: Configuration) -> str:
    """Sell one unit: read the stock, pause, write what was read minus one. Only a lock makes this safe."""
    redis = connect_goods(shop.goods)
    amount = int(redis.get(GOODS) or 0)
    if amount <= 0:
        return SOLD_OUT
    time.sleep(shop.kill_pause)
    redis.set(GOODS, amount - 1)
    order = Order(str(uuid.uuid4()), PRODUCT_ID, 1, shop.instance, amount, datetime.now(UTC))
    redis.rpush(ORDERS, json.dumps(asdict(order), default=datetime.isoformat))
    return CONGRATULATIONS


def open_goods_sale(url: str, stock: int) -> None:
    connect_goods(url).delete(ORDERS)
    connect_goods(url).set(GOODS, stock)


def read_goods_ledger(url: str) -> Ledger:
    found = (json.loads(row) for row in connect_goods(url).lrange(ORDERS, 0, -1))
    orders = (Order(**row | {"created_at": datetime.fromisoformat(row["created_at"])}) for row in found)
    left = int(connect_goods(url).get(GOODS) or 0)
    return Ledger({PRODUCT_ID: left}, tuple(sorted(orders, key=lambda order: order.created_at)))


#: The gateway takes this many payments at once, and refuses more.
GATEWAY_LIMIT = 5
#: The longest wait for an answer of the gateway, seconds.
GATEWAY_PATIENCE = 30.0


def charge(shop: Configuration) -> bool:
    """Send a payment to the gateway, and return whether the gateway took it."""
    asked = urllib.request.Request(shop.gateway, data=b"", method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=GATEWAY_PATIENCE):
            return True
    except urllib.error.HTTPError as refused:
        refused.close()
        return False
