from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import re_path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.response import Response

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

Serve = Callable[..., Client]


@distributed_lock("product_<id>", timeout=0)
def buy(request: HttpRequest, id: int) -> HttpResponse: ...


def test_on_a_class_that_is_no_view_it_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"Shop is a class, and no view: .*above one of its methods"):

        @distributed_lock("product_<id>")
        class Shop: ...


@pytest.mark.parametrize("methods", [None, ["PUT"]])
def test_a_class_that_would_never_be_locked_is_refused_when_it_becomes_a_view(methods: list[str]) -> None:
    @distributed_lock("product_<id>", methods=methods)
    class Base(View): ...

    class Show(Base):
        def get(self, request: HttpRequest, id: int) -> HttpResponse: ...

    with pytest.raises(ConfigurationError, match=r'answers only GET: .*methods=\["GET"\]\)'):
        Show.as_view()


def test_a_class_that_answers_no_get_is_not_locked_for_it() -> None:
    @distributed_lock("product_<id>", methods=["GET"])
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse: ...

    with pytest.raises(
        ConfigurationError, match=r'answers only POST: .*Write @distributed_lock\("product_<id>"\),'
    ):
        Buy.as_view()


def test_a_dispatch_that_would_never_be_locked_is_refused(serve: Serve) -> None:
    @method_decorator(distributed_lock("product_<id>"), name="dispatch")
    class Show(View):
        def get(self, request: HttpRequest, id: int) -> HttpResponse: ...

    with pytest.raises(ConfigurationError, match="would never be locked"):
        serve(Show.as_view()).get("/product/1")


def test_a_method_that_would_never_be_locked_is_refused(serve: Serve) -> None:
    class Buy(View):
        @distributed_lock("product_<id>", methods=["PUT"])
        def post(self, request: HttpRequest, id: int) -> HttpResponse: ...

    with pytest.raises(ConfigurationError, match="would never lock"):
        serve(Buy.as_view()).post("/product/1")


def test_above_staticmethod_it_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="write @staticmethod above it"):

        class Shop:
            @distributed_lock("product_<id>")
            @staticmethod
            def view(request: HttpRequest, id: int) -> HttpResponse: ...


def test_above_classmethod_it_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="write @classmethod above it"):

        class Shop:
            @distributed_lock("product_<id>")
            @classmethod
            def view(cls, request: HttpRequest, id: int) -> HttpResponse: ...


def test_below_api_view_it_says_what_to_do() -> None:
    drf_request = SimpleNamespace(_request=HttpRequest())
    with pytest.raises(ConfigurationError, match="write it above"):
        buy(drf_request, 1)


def test_below_api_view_it_says_so_for_a_request_of_its_url(serve: Serve) -> None:
    view = distributed_lock("product_<id>")(lambda request, id: Response("sold"))
    with pytest.raises(ConfigurationError, match="stands below @api_view"):
        serve(api_view(["GET", "POST"])(view)).post("/product/1")


def test_a_class_based_view_is_locked_in_the_url_configuration(serve: Serve) -> None:
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse(str(locks.lock("product_1").locked()))

    assert serve(distributed_lock("product_<id>")(Buy.as_view())).post("/product/1").content == b"True"


def test_on_a_method_through_method_decorator_arguments_are_found_by_position(serve: Serve) -> None:
    class Buy(View):
        @method_decorator(distributed_lock("product_<int:id>"))
        def post(self, request: HttpRequest, id: str) -> HttpResponse:
            return HttpResponse(str(locks.lock("product_1").locked()))

    client = serve([re_path(r"^product/(\d+)$", Buy.as_view())])
    assert client.post("/product/1").content == b"True"


def test_without_parentheses_it_says_what_to_write(serve: Serve) -> None:
    with pytest.raises(ConfigurationError, match=r"\.buy: .*@distributed_lock\('product_<int:id>'\)"):
        serve(distributed_lock(buy)).post("/product/1")


def test_a_name_that_the_function_does_not_have_is_found_at_import() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'product_<id>'"):
        distributed_lock("product_<idd>")(buy)
