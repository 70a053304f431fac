"""A view that leaves a transaction open: nothing of it is committed after the release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.views import View

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

pytestmark = pytest.mark.django_db(transaction=True)

Serve = Callable[..., Client]

lock = distributed_lock("product_<int:id>")


def write() -> None:
    Group.objects.create(name="sold")


def manually() -> None:
    transaction.set_autocommit(False)
    write()


def by_entering() -> None:
    transaction.atomic().__enter__()
    write()


def by_raising() -> None:
    manually()
    raise ValueError("the view's own")


class CommitsAfterwards:
    """A middleware that commits whatever is open when the view is done."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        self.commit()
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        self.commit()

    def commit(self) -> None:
        if connection.in_atomic_block:
            connection.atomic_blocks[-1].__exit__(None, None, None)
        elif not connection.get_autocommit():
            transaction.commit()


@pytest.fixture(autouse=True)
def configured(settings: Any) -> Iterator[None]:
    settings.DISTLOCK = "memory://left-open"
    settings.MIDDLEWARE = [f"{__name__}.CommitsAfterwards"]
    yield
    # In memory SQLite is not closed: what a run that fails has left open would stay.
    while connection.atomic_blocks:
        connection.atomic_blocks[-1].__exit__(ValueError, ValueError(), None)
    transaction.set_autocommit(True)


def function(leave: Callable[[], None]) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        leave()
        return HttpResponse("sold")

    return lock(view)


def on_method(leave: Callable[[], None]) -> Any:
    class Sell(View):
        @lock
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            leave()
            return HttpResponse("sold")

    return Sell.as_view()


def async_function(leave: Callable[[], None]) -> Any:
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        await sync_to_async(leave)()
        return HttpResponse("sold")

    return lock(view)


def async_on_method(leave: Callable[[], None]) -> Any:
    class Sell(View):
        @lock
        async def post(self, request: HttpRequest, id: int) -> HttpResponse:
            await sync_to_async(leave)()
            return HttpResponse("sold")

    return Sell.as_view()


@pytest.mark.parametrize("make", [function, on_method, async_function, async_on_method])
@pytest.mark.parametrize("leave", [manually, by_entering])
def test_a_transaction_that_is_left_open_is_rolled_back_and_told(
    serve: Callable[..., Client], make: Callable[..., Any], leave: Callable[[], None]
) -> None:
    client = serve(make(leave))
    with pytest.raises(ConfigurationError, match="left a transaction of the database 'default' open"):
        client.post("/product/1")
    assert not Group.objects.exists()


def test_a_block_that_is_never_left_is_not_committed_under_atomic_requests_either(
    serve: Callable[..., Client], atomic_requests: None
) -> None:
    client = serve(function(by_entering))
    with pytest.raises(ConfigurationError, match="left a transaction of the database 'default' open"):
        client.post("/product/1")
    assert not Group.objects.exists()


def block(leave: Callable[[], None]) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        with locks.lock(f"product_{id}"):
            leave()
        return HttpResponse("sold")

    return view


def by_a_stack_around_it(stack: ExitStack) -> Callable[[HttpRequest, int], HttpResponse]:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        with stack:
            with locks.lock(f"product_{id}"):
                stack.enter_context(transaction.atomic())
                write()
            return HttpResponse("sold")

    return view


@pytest.mark.parametrize("leave", [manually, by_entering])
def test_so_is_one_that_a_block_leaves_open(serve: Serve, leave: Callable[[], None]) -> None:
    client = serve(block(leave))
    with pytest.raises(ConfigurationError, match="left a transaction of the database 'default' open"):
        client.post("/product/1")
    assert not Group.objects.exists()
    assert not locks.lock("product_1").locked()


def test_a_transaction_around_the_end_of_a_block_is_not_committed_after_it(serve: Serve) -> None:
    client = serve(by_a_stack_around_it(ExitStack()))
    with pytest.raises(ConfigurationError, match="left a transaction of the database 'default' open"):
        client.post("/product/1")
    assert not Group.objects.exists()
    assert connection.get_autocommit()


@pytest.mark.parametrize("make", [function, async_function, block])
def test_the_error_of_the_view_is_raised_all_the_same(
    serve: Callable[..., Client], make: Callable[..., Any]
) -> None:
    client = serve(make(by_raising))
    with pytest.raises(ValueError, match="the view's own"):
        client.post("/product/1")
    assert not Group.objects.exists()


@pytest.mark.parametrize("make", [function, async_function, block])
def test_who_ends_his_transaction_is_left_alone(
    serve: Callable[..., Client], make: Callable[..., Any]
) -> None:
    def leave() -> None:
        manually()
        transaction.commit()
        transaction.set_autocommit(True)

    assert serve(make(leave)).post("/product/1").content == b"sold"
    assert Group.objects.count() == 1
