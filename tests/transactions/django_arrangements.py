"""The arrangements in Django. `sell` is the body of every view."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from tests.transactions.arrangement import OVERSELLS, SELLS, Table
from tests.transactions.till import DECIDING_TAKES, Book, fence_here, on_sale, told_fence

Guard = Callable[..., Any]

DJANGO = Table()
BOOK = Book()

ABOVE_ATOMIC = r"Write @distributed_lock above whatever opens it, transaction\.atomic"
ABOVE_CLASS = "above the class Buy"
ON_VIEW = "on the view itself and not on a function"
NON_ATOMIC = r"Write @transaction\.non_atomic_requests above it"


def sell(id: int, orders: str = "default") -> bool:
    """Sell a piece of *id* if there is one, and note it in the database *orders*."""
    with BOOK.selling(), connections["default"].cursor() as cursor, connections[orders].cursor() as other:
        cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
        (stock,) = cursor.fetchone()
        if stock < 1:
            return False
        time.sleep(DECIDING_TAKES)
        cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock - 1, id])
        other.execute("INSERT INTO sale (product) VALUES (%s)", [id])
        on_sale.get()()
        return True


def answer(sold: bool) -> HttpResponse:
    return HttpResponse("sold") if sold else HttpResponse("sold out", status=409)


def buy(request: HttpRequest, id: int) -> HttpResponse:
    return answer(sell(id))


@DJANGO.add("`ATOMIC_REQUESTS`")
def atomic_requests(guard: Guard) -> Any:
    return guard(buy)


@DJANGO.add("`ATOMIC_REQUESTS`, a rule", rule=True, middleware=True)
def by_a_rule(guard: Guard) -> Any:
    return guard(buy)


@DJANGO.add("`ATOMIC_REQUESTS`, a class-based view")
def class_based(guard: Guard) -> Any:
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return buy(request, id)

    return guard(Buy).as_view()


@DJANGO.add("`ATOMIC_REQUESTS`, one method of a class", lock=ABOVE_CLASS, fence=ABOVE_CLASS)
def one_method(guard: Guard) -> Any:
    class Buy(View):
        @method_decorator(guard)
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return buy(request, id)

    return Buy.as_view()


@DJANGO.add("`ATOMIC_REQUESTS`, Django REST framework, a function")
def rest_function(guard: Guard) -> Any:
    from rest_framework.decorators import api_view, authentication_classes

    @guard
    @api_view(["POST"])
    @authentication_classes([])
    def view(request: Any, id: int) -> HttpResponse:
        return answer(sell(id))

    return view


@DJANGO.add("`ATOMIC_REQUESTS`, Django REST framework, a class")
def rest_class(guard: Guard) -> Any:
    from rest_framework.views import APIView

    class Buy(APIView):
        authentication_classes = ()

        def post(self, request: Any, id: int) -> HttpResponse:
            return answer(sell(id))

    return guard(Buy).as_view()


@DJANGO.add(
    "`ATOMIC_REQUESTS` on two databases: the stock in one, the orders in the other",
    both=True,
    batch="several databases",
)
def two_databases(guard: Guard) -> Any:
    return guard(lambda request, id: answer(sell(id, orders="other")))


@DJANGO.add("`ATOMIC_REQUESTS`, the view raises after it has written", trouble=True)
def raises(guard: Guard) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        response = buy(request, id)
        if "trouble" in request.GET:
            raise ZeroDivisionError
        return response

    return guard(view)


@DJANGO.add("`ATOMIC_REQUESTS`, `SystemExit` after it has written", trouble=True)
def exits(guard: Guard) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        response = buy(request, id)
        if "trouble" in request.GET:
            raise SystemExit
        return response

    return guard(view)


@DJANGO.add("`ATOMIC_REQUESTS`, a streaming response", batch="return it whole")
def streaming(guard: Guard) -> Any:
    def view(request: HttpRequest, id: int) -> StreamingHttpResponse:
        sold = sell(id)
        return StreamingHttpResponse(iter([b"sold" if sold else b"sold out"]), status=200 if sold else 409)

    return guard(view)


@DJANGO.add("`ATOMIC_REQUESTS`, on a function that the view calls", lock=ON_VIEW, fence=ON_VIEW)
def a_function_of_the_view(guard: Guard) -> Any:
    # By name and not by request: the function is no view.
    sells = guard(sell)
    return lambda request, id: answer(sells(id=id))


@DJANGO.add("`ATOMIC_REQUESTS` and `non_atomic_requests`", plain=SELLS)
def non_atomic_requests(guard: Guard) -> Any:
    @guard
    @transaction.non_atomic_requests
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return buy(request, id)

    return view


@DJANGO.add("autocommit", plain=SELLS, atomic=False)
def autocommit(guard: Guard) -> Any:
    return guard(buy)


@DJANGO.add("`transaction.atomic()` inside the view", plain=SELLS, atomic=False)
def atomic_inside(guard: Guard) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        with transaction.atomic():
            return buy(request, id)

    return guard(view)


@DJANGO.add("`@transaction.atomic` below the decorator", plain=SELLS, atomic=False)
def atomic_below(guard: Guard) -> Any:
    return guard(transaction.atomic(buy))


@DJANGO.add("`@transaction.atomic` above the decorator", lock=ABOVE_ATOMIC, fence=ABOVE_ATOMIC, atomic=False)
def atomic_above(guard: Guard) -> Any:
    return transaction.atomic(guard(buy))


@DJANGO.add("ASGI, a sync view under `ATOMIC_REQUESTS`", asgi=True)
def sync_under_asgi(guard: Guard) -> Any:
    return guard(buy)


@DJANGO.add("ASGI, a sync view whose client goes away", asgi=True, trouble=True)
def sync_view_of_a_client_that_goes(guard: Guard) -> Any:
    return guard(buy)


@DJANGO.add(
    "ASGI, an async view under `ATOMIC_REQUESTS`",
    lock=NON_ATOMIC,
    fence=NON_ATOMIC,
    batch=None,
    asgi=True,
    plain=None,
)
def async_view_under_atomic_requests(guard: Guard) -> Any:
    return guard(async_buy)


@DJANGO.add(
    "ASGI, an async view that runs an atomic function with `sync_to_async`",
    plain=SELLS,
    fence="has a fence, and Django opens no transactions around async code",
    batch=None,
    atomic=False,
    asgi=True,
)
def async_view(guard: Guard) -> Any:
    return guard(async_buy)


@DJANGO.add(
    "ASGI, the same, and the client goes away",
    plain=OVERSELLS,
    fence="has a fence, and Django opens no transactions around async code",
    batch=None,
    atomic=False,
    asgi=True,
    trouble=True,
)
def async_view_of_a_client_that_goes(guard: Guard) -> Any:
    return guard(async_buy)


@DJANGO.add(
    "ASGI, on the function that `sync_to_async` runs", plain=SELLS, atomic=False, asgi=True, middleware=True
)
def function_of_an_async_view(guard: Guard) -> Any:
    guarded = guard(transaction.atomic(sell))

    async def view(request: HttpRequest, id: int) -> HttpResponse:
        return answer(await sync_to_async(guarded)(id=id))

    return view


async def async_buy(request: HttpRequest, id: int) -> HttpResponse:
    if (fence := fence_here()) is not None:
        told_fence.set(fence)
    return answer(await sync_to_async(transaction.atomic(sell))(id))
