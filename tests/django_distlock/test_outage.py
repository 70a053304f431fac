from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.test import Client

from django_distlock import distributed_lock
from tests.redis_server import RedisServer, own_server

__all__ = ["own_server"]


def test_an_outage_is_answered_and_over_when_it_is_over(
    serve: Callable[..., Client], settings: Any, own_server: RedisServer
) -> None:
    @distributed_lock("product_<id>")
    def buy(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    settings.DISTLOCK = own_server.url
    client = serve(buy)
    assert client.post("/product/1").status_code == 200
    own_server.kill()
    response = client.post("/product/1")
    assert (response.status_code, response.json()["code"]) == (503, "lock_backend_unavailable")
    own_server.start()
    assert client.post("/product/1").status_code == 200


def test_an_outage_in_the_middle_of_a_view_leaves_its_answer(
    serve: Callable[..., Client], settings: Any, own_server: RedisServer
) -> None:
    @distributed_lock("product_<id>")
    def buy(request: HttpRequest, id: int) -> HttpResponse:
        own_server.kill()
        return HttpResponse("sold")

    settings.DISTLOCK = own_server.url
    assert serve(buy).post("/product/1").content == b"sold"
