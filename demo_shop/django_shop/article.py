"""The two pages of the articles, as they are described there; only the guard is ours."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from demo_shop import goods
from demo_shop.django_shop.once import refuse
from demo_shop.django_shop.selling import WAYS, subtract
from demo_shop.django_shop.views import SHOP, sell
from demo_shop.guards import guarded
from demo_shop.sale import Line, Refusal, no_goods, read_id
from django_distlock import distributed_lock

log = logging.getLogger("shop")
# The article's way to write, unless the guard is another way.
take = subtract if sell is WAYS["read_and_write"] else sell


def stock_name(request: HttpRequest) -> Iterable[str]:
    return [f"product_{read_id(request.GET.get('id'))}"]


def goods_name(request: HttpRequest) -> Iterable[str]:
    return [goods.GOODS]


@require_GET
@guarded(SHOP, distributed_lock("product_<int:query.id>"), stock_name, refuse)
def reduce_stock(request: HttpRequest) -> HttpResponse:
    """``GET /stock/reduce?id=1`` says OK to everybody; only the log knows which buyers got nothing."""
    line = Line(read_id(request.GET.get("id")))
    try:
        take([line])
    except Refusal as refusal:
        log.info("product %s: %s", line.sku, refusal)
    return HttpResponse("OK")


@require_GET
@guarded(SHOP, distributed_lock(goods.GOODS), goods_name, refuse)
def kill(request: HttpRequest) -> HttpResponse:
    if not SHOP.goods:
        raise no_goods()
    return HttpResponse(goods.kill(SHOP))
