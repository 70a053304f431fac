"""The two pages of the articles, as they are described there; only the guard is ours."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from flask import Blueprint, Response, make_response, request

from demo_shop import goods
from demo_shop.flask_shop.database import SHOP, db
from demo_shop.flask_shop.once import refuse
from demo_shop.flask_shop.selling import WAYS, subtract
from demo_shop.flask_shop.views import sell
from demo_shop.guards import guarded
from demo_shop.sale import Line, Refusal, no_goods, read_id
from flask_distlock import distributed_lock

log = logging.getLogger("shop")
article = Blueprint("article", __name__)
# The article's way to write, unless the guard is another way.
take = subtract if sell is WAYS["read_and_write"] else sell


def stock_name() -> Iterable[str]:
    return [f"product_{read_id(request.args.get('id'))}"]


def goods_name() -> Iterable[str]:
    return [goods.GOODS]


@article.get("/stock/reduce")
@guarded(SHOP, distributed_lock("product_<int:query.id>"), stock_name, refuse)
def reduce_stock() -> Response:
    """``GET /stock/reduce?id=1`` says OK to everybody; only the log knows which buyers got nothing."""
    line = Line(read_id(request.args.get("id")))
    try:
        take([line])
        db.session.commit()
    except Refusal as refusal:
        db.session.rollback()
        log.info("product %s: %s", line.sku, refusal)
    return make_response("OK")


@article.get("/kill")
@guarded(SHOP, distributed_lock(goods.GOODS), goods_name, refuse)
def kill() -> Response:
    if not SHOP.goods:
        raise no_goods()
    return make_response(goods.kill(SHOP))
