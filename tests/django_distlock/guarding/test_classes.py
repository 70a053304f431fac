"""What a guard on a class-based view locks, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.generic import UpdateView

from distlock import current_grant
from distlock.errors import ConfigurationError, LockTimeout
from django_distlock import distributed_lock, locks

Serve = Callable[..., Client]

lock = distributed_lock("product_<id>", timeout=0)


class Buy(View):
    def get(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("price")

    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    put = patch = delete = post


def sub(cls: type = Buy, **members: Any) -> Any:
    return type(f"Sub{cls.__name__}", (cls,), {"__module__": __name__, **members})


WAYS: dict[str, Callable[..., Any]] = {
    "class": lambda guard: guard(sub()).as_view(),
    "as_view": lambda guard: guard(Buy.as_view()),
    "dispatch": lambda guard: method_decorator(guard, name="dispatch")(sub()).as_view(),
}
every_way = pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)


def locked_methods(client: Client) -> list[str]:
    with locks.lock("product_1"):
        methods = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
        return [method for method in methods if client.generic(method, "/product/1").status_code == 423]


@pytest.mark.attack("A28")
@every_way
def test_a_class_is_locked_for_methods_that_change_something(serve: Serve, make: Callable[..., Any]) -> None:
    client = serve(make(lock))
    assert locked_methods(client) == ["POST", "PUT", "PATCH", "DELETE"]
    assert client.post("/product/1").content == b"sold"


@every_way
def test_a_class_is_locked_for_the_methods_it_is_told(serve: Serve, make: Callable[..., Any]) -> None:
    client = serve(make(distributed_lock("product_<id>", timeout=0, methods=["GET", "PUT"])))
    assert locked_methods(client) == ["GET", "HEAD", "PUT"]


def test_one_method_is_locked_for_itself(serve: Serve) -> None:
    assert locked_methods(serve(sub(delete=lock(Buy.post)).as_view())) == ["DELETE"]
    assert locked_methods(serve(method_decorator(lock, name="get")(sub()).as_view())) == ["GET", "HEAD"]


def test_the_base_of_a_decorated_class_is_left_alone(serve: Serve) -> None:
    base = sub()
    lock(sub(base)).as_view()
    assert locked_methods(serve(base.as_view())) == []


def test_the_class_stays_the_class(serve: Serve) -> None:
    view = lock(sub()).as_view(http_method_names=["post"])
    assert view.view_class.__name__ == "SubBuy"
    assert view.view_initkwargs == {"http_method_names": ["post"]}
    client = serve([path("product/<int:id>", view, name="buy")])
    assert reverse("buy", args=[1]) == reverse(view, args=[1]) == "/product/1"
    assert client.get("/product/1").status_code == 405


def test_methods_that_as_view_takes_away_are_not_there_to_lock() -> None:
    with pytest.raises(ConfigurationError, match="answers only GET"):
        lock(sub()).as_view(http_method_names=["get"])


def test_as_view_of_its_own_that_hides_the_class_is_refused() -> None:
    class Hiding(Buy):
        @classmethod
        def as_view(cls, **initkwargs: Any) -> Any:
            view = super().as_view(**initkwargs)
            return lambda request, id: view(request, id=id)

    with pytest.raises(ConfigurationError, match=r"Hiding gives a function .* needs functools\.wraps"):
        lock(Hiding).as_view()


def test_guards_of_one_name_inside_one_another_share_the_grant(serve: Serve) -> None:
    seen: list[bool] = []

    @lock
    def sell(id: int) -> None:
        seen.append(current_grant() is outer[0])

    outer: list[Any] = []

    @lock
    class Twice(View):
        @lock
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            outer.append(current_grant())
            sell(id)
            return HttpResponse("sold")

    assert serve(Twice.as_view()).post("/product/1").content == b"sold"
    assert seen == [True]


def test_helpers_of_a_view_raise(serve: Serve) -> None:
    class Helped(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return self.sell(request, id)

        @lock
        def sell(self, request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse("sold")

    client = serve(Helped.as_view())
    assert client.post("/product/1").content == b"sold"
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        client.post("/product/1")


def test_helpers_of_other_classes_raise_too(serve: Serve) -> None:
    class Shop:
        @lock
        def sell(self, request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse("sold")

    client = serve(lambda request, id: Shop().sell(request, id))
    assert client.post("/product/1").content == b"sold"
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        client.post("/product/1")


def test_a_view_that_wants_the_error_gets_it(serve: Serve) -> None:
    client = serve(distributed_lock("product_<id>", timeout=0, on_contended="raise")(sub()).as_view())
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        client.post("/product/1")


@pytest.mark.django_db(transaction=True)
def test_a_generic_view_reads_and_writes_under_its_lock(serve: Serve, atomic_requests: None) -> None:
    @distributed_lock("group_<int:pk>")
    class Rename(UpdateView):
        model = Group
        fields = ["name"]
        success_url = "/"

        def get_object(self, queryset: Any = None) -> Any:
            assert current_grant().names == (f"group_{self.kwargs['pk']}",)
            return super().get_object(queryset)

    group = Group.objects.create(name="old")
    client = serve(Rename.as_view(), "group/<int:pk>")
    assert client.post(f"/group/{group.pk}", {"name": "new"}).status_code == 302
    assert Group.objects.get().name == "new"
