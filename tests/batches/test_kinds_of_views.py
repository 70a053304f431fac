"""Where ``batch=`` may stand in Django, and what is refused with the line to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.views import View
from rest_framework.exceptions import ValidationError
from rest_framework.views import APIView
from sqlalchemy import Engine

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock
from tests.batches.django_line import Answer, DjangoLine, counted_commits
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import DjangoShop, open_shop

pytestmark = on("postgresql")

SOLD = Answer(200)


def put(line: DjangoLine, view: Any) -> None:
    line.shop.urls.urlpatterns.append(path("product/<int:id>", view, name="buy"))


def take_one(line: DjangoLine) -> HttpResponse:
    line.shop.write(line.shop.read() - 1)
    return HttpResponse("sold")


def is_one_batch(line: DjangoLine) -> bool:
    with counted_commits() as commits:
        assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    return (len(commits), line.left()) == (1, STOCK - 3)


def test_a_class(line: DjangoLine) -> None:
    @distributed_lock("product_<id>", fence=line.using, batch=8)
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return take_one(line)

    put(line, Buy.as_view())
    assert is_one_batch(line)


def test_rest_framework(line: DjangoLine) -> None:
    @distributed_lock("product_<id>", fence=line.using, batch=8)
    class Buy(APIView):
        authentication_classes = ()

        def post(self, request: Any, id: int) -> HttpResponse:
            response = take_one(line)
            if request.META["QUERY_STRING"] == "d":
                raise ValidationError("no")
            return response

    put(line, Buy.as_view())
    with override_settings(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}):
        assert is_one_batch(line)


def test_atomic_requests(line: DjangoLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings[line.using], "ATOMIC_REQUESTS", True)
    line.serve({}, fence=False)
    assert is_one_batch(line)


def test_rest_framework_rolls_back_what_raises_alone(
    line: DjangoLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings[line.using], "ATOMIC_REQUESTS", True)

    @distributed_lock("product_<id>", batch=8)
    class Buy(APIView):
        authentication_classes = ()

        def post(self, request: Any, id: int) -> HttpResponse:
            response = take_one(line)
            if request.META["QUERY_STRING"] == "b":
                raise ValidationError("no")
            return response

    put(line, Buy.as_view())
    with override_settings(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}):
        assert line.answers("a", "b", "c") == {"a": SOLD, "b": Answer(400), "c": SOLD}
    assert line.left() == STOCK - 2


def test_a_rule(line: DjangoLine) -> None:
    put(line, lambda request, id: take_one(line))
    rule = {"route": "buy", "lock": "product_<id>", "fence": line.using, "batch": 8}
    with override_settings(
        MIDDLEWARE=["django_distlock.middleware.DistlockMiddleware"], DISTLOCK_RULES=[rule]
    ):
        assert is_one_batch(line)


@pytest.fixture
def line_of_rows(engine: Engine, using: str, unhurried: None) -> Iterator[DjangoLine]:
    with open_shop("django", engine, using, {"BACKEND": "database", "LOCATION": using}) as shop:
        assert isinstance(shop, DjangoShop)
        yield DjangoLine(shop, engine)


def test_a_lock_that_is_a_row(line_of_rows: DjangoLine) -> None:
    line_of_rows.serve({}, fence=None)
    with counted_commits() as commits:
        answers = line_of_rows.standing_in_view("a", "b", "c")
    assert answers == dict.fromkeys("abc", SOLD)
    assert (len(commits), line_of_rows.left()) == (2, STOCK - 3)


def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


def refusal(line: DjangoLine, view: Any, **guard: Any) -> str:
    words = {"fence": line.using, "batch": 8, **guard}
    put(line, distributed_lock(words.pop("name", "product_<id>"), **words)(view))
    with pytest.raises(ConfigurationError) as refused:
        Client().post("/product/1")
    assert line.left() == STOCK
    return str(refused.value)


def test_a_stream_is_refused(line: DjangoLine) -> None:
    def stream(request: HttpRequest, id: int) -> StreamingHttpResponse:
        take_one(line)
        return StreamingHttpResponse(iter([b"sold"]))

    assert "return it whole, or leave batch= out" in refusal(line, stream)


def test_several_names_of_one_call_are_refused(line: DjangoLine) -> None:
    assert "'a', 'b'. Only requests" in refusal(line, buy, name=lambda request, id: ["a", "b"])


def test_without_a_transaction_there_is_nothing_to_share(line: DjangoLine) -> None:
    assert "write fence=True beside it" in refusal(line, buy, fence=False)


def test_transactions_of_two_databases_are_refused(line: DjangoLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert "several databases: 'default', 'fenced'" in refusal(line, buy)


def test_a_durable_block_in_the_view_is_refused(line: DjangoLine) -> None:
    def durable(request: HttpRequest, id: int) -> HttpResponse:
        with transaction.atomic(using=line.using, durable=True):
            return take_one(line)

    assert "without it, or leave batch= out" in refusal(line, durable)
    assert line.left() == STOCK


def test_what_else_a_view_raises_is_its_own(line: DjangoLine) -> None:
    def fail(request: HttpRequest, id: int) -> HttpResponse:
        raise RuntimeError("of the view")

    put(line, distributed_lock("product_<id>", fence=line.using, batch=8)(fail))
    with pytest.raises(RuntimeError, match="of the view"):
        Client().post("/product/1")
