"""A method is told from a function by the class that has it: names are made of what its caller gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.views import View

from distlock import ConfigurationError, current_grant
from django_distlock import distributed_lock, locks

lock = distributed_lock(lambda id: f"product_{id}")


def names() -> tuple[str, ...]:
    return current_grant().names


def passes(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Shop:
    @lock
    def sell(shop, id: int) -> tuple[str, ...]:  # noqa: N805
        return names()

    reduce = sell

    @classmethod
    @lock
    def of_class(shop, id: int) -> tuple[str, ...]:  # noqa: N804
        return names()

    @staticmethod
    @lock
    def static(id: int) -> tuple[str, ...]:
        return names()

    @passes
    @lock
    def decorated(shop, id: int) -> tuple[str, ...]:  # noqa: N805
        return names()

    partial = functools.partialmethod(sell, 1)


class Branch(Shop):
    def sell(self, id: int) -> tuple[str, ...]:
        return super().sell(id)


@pytest.mark.parametrize("name", ["sell", "reduce", "of_class", "static", "decorated"])
@pytest.mark.parametrize("cls", [Shop, Branch])
def test_a_method_is_one_whatever_its_first_parameter_is_called(cls: Any, name: str) -> None:
    assert getattr(cls(), name)(1) == ("product_1",)
    assert getattr(cls(), name)(id=1) == ("product_1",)


def test_so_it_is_where_it_is_called_on_the_class_or_in_part() -> None:
    assert Shop.sell(Shop(), 1) == ("product_1",)
    assert Shop.of_class(1) == ("product_1",)
    assert Shop().partial() == ("product_1",)


def hides(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Hidden:
    @hides
    @distributed_lock(lambda id, region="eu": f"product_{id}_{region}")
    def below_a_decorator(self, id: int) -> tuple[str, ...]:
        return names()

    @functools.lru_cache  # noqa: B019
    @distributed_lock(lambda id, region="eu": f"product_{id}_{region}")
    def cached(self, id: int) -> tuple[str, ...]:
        return names()


@pytest.mark.parametrize("name", ["below_a_decorator", "cached"])
def test_a_decorator_that_hides_a_method_changes_no_name(name: str) -> None:
    assert getattr(Hidden(), name)(1) == ("product_1_eu",)


def test_nor_does_an_instance_of_another_class() -> None:
    method = distributed_lock(lambda id, region="eu": f"product_{id}_{region}")(Other.sell)
    assert method(Hidden(), 1) == ("product_1_eu",)


class Other:
    def sell(self, id: int) -> tuple[str, ...]:
        return names()


def test_a_function_that_becomes_a_method_later_is_one_from_then_on() -> None:
    @distributed_lock(lambda *given: f"product_{given[-1]}_{len(given)}")
    def sell(shop: object, id: int) -> tuple[str, ...]:
        return names()

    class Later:
        pass

    assert sell(Later(), 1) == ("product_1_2",)
    Later.sell = sell  # type: ignore[attr-defined]
    assert Later().sell(1) == ("product_1_1",)  # type: ignore[attr-defined]


def test_a_template_over_self_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="self"):

        class Shop:
            @distributed_lock("product_<int:self>")
            def sell(self, id: int) -> None: ...


def test_a_function_is_none_whatever_its_first_parameter_is_called() -> None:
    @distributed_lock(lambda self: f"product_{self}")
    def sell(self: int) -> tuple[str, ...]:
        return names()

    assert sell(1) == ("product_1",)


def test_templates_find_the_argument_of_either() -> None:
    by_name = distributed_lock("product_<int:id>")

    class Other:
        @by_name
        def sell(this, id: int) -> tuple[str, ...]:  # noqa: N805
            return names()

    @by_name
    def sell(self: object, id: int) -> tuple[str, ...]:
        return names()

    assert Other().sell(1) == sell(None, 1) == ("product_1",)


def test_a_method_of_a_view_is_answered_whatever_its_first_parameter_is_called(
    serve: Callable[..., Client],
) -> None:
    class Buy(View):
        @distributed_lock(lambda request, id: f"product_{id}", timeout=0)
        def post(view, request: HttpRequest, id: int) -> HttpResponse:  # noqa: N805
            return HttpResponse("".join(names()))

    client = serve(Buy.as_view())
    assert client.post("/product/1").content == b"product_1"
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423
