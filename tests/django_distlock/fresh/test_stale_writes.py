"""Rows that were loaded before the lock and are saved under it are told, and others are not."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.signals import request_started
from django.db import connection, transaction
from django.db.backends.signals import connection_created
from django.db.models import F
from django.db.models.signals import post_init, post_save, pre_save
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import register_converter
from django.urls.converters import get_converters
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View

from distlock import ConfigurationError, StaleWrite
from django_distlock import distributed_lock, locks
from django_distlock.fresh.stale_writes import note_read
from tests.django_distlock.fresh.stale_shop import Basket, Product, Versioned
from tests.test_docs import DOCS
from tests.web.quickstart import code_blocks

pytestmark = pytest.mark.urls("tests.django_distlock.urls")

Told = Sequence[str]
Serve = Callable[..., Client]


def sell(product: Product) -> HttpResponse:
    product.stock -= 1
    product.save()
    return HttpResponse("sold")


class LoadsInSetup(View):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.product = Product.objects.get(id=kwargs["id"])

    @method_decorator(distributed_lock("product_<id>"))
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(self.product)


def test_a_row_of_setup_is_told(product: Product, told: Told, serve: Serve) -> None:
    assert serve(LoadsInSetup.as_view()).post("/product/1").status_code == 200
    (message,) = told
    assert message.startswith("Product 1 was loaded before the lock 'product_1' and is saved under it")
    assert "in LoadsInSetup.setup: self.product = Product.objects.get(id=kwargs" in message
    assert "in sell: product.save()" in message
    assert "'product.refresh_from_db()'" in message


class Reduce(View):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.product = Product.objects.get(id=kwargs["id"])

    @method_decorator(distributed_lock("product_<id>"))
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        self.product.stock -= 1
        self.product.save()
        return HttpResponse("sold")


def test_the_page_shows_the_message(product: Product, told: Told, serve: Serve) -> None:
    serve(Reduce.as_view()).post("/product/1")
    (message,) = told
    (shown,) = code_blocks((DOCS / "explanation/read-under-the-lock.md").read_text("utf-8"), "text")
    assert re.sub(r"\S+\.py:\d+", "views.py", message) == re.sub(r"\S+\.py:\d+", "views.py", shown.strip())


@distributed_lock("product_<id>")
def readme(request: HttpRequest, id: int) -> HttpResponse:
    return sell(Product.objects.get(id=id))


def test_readmes_view_is_not_told(product: Product, told: Told, serve: Serve) -> None:
    assert serve(readme).post("/product/1").status_code == 200
    assert not told


class LoadsInDispatch(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self.product = Product.objects.get(id=kwargs["id"])
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        with locks.lock(f"product_{id}"):
            return sell(self.product)


def test_a_block_in_a_handler_is_told_of_a_row_of_dispatch(
    product: Product, told: Told, serve: Serve
) -> None:
    assert serve(LoadsInDispatch.as_view()).post("/product/1").status_code == 200
    (message,) = told
    assert "in LoadsInDispatch.dispatch: self.product" in message


def with_product(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[Any], HttpResponse]:
    def middleware(request: Any) -> HttpResponse:
        request.product = Product.objects.get(id=1)
        return get_response(request)

    return middleware


@distributed_lock("product_<id>")
def sells_of_request(request: Any, id: int) -> HttpResponse:
    return sell(request.product)


def test_a_row_of_a_middleware_is_told(product: Product, told: Told, serve: Serve, settings: Any) -> None:
    settings.MIDDLEWARE = [f"{__name__}.with_product"]
    assert serve(sells_of_request).post("/product/1").status_code == 200
    (message,) = told
    assert "middleware: request.product = Product.objects.get(id=1)" in message


class ProductConverter:
    regex = "[0-9]+"

    def to_python(self, value: str) -> Product:
        return Product.objects.get(id=int(value))

    def to_url(self, value: Product) -> str:
        return str(value.pk)


@distributed_lock(lambda request, product: f"product_{product.pk}")
def sells_converted(request: HttpRequest, product: Product) -> HttpResponse:
    return sell(product)


def test_a_row_of_a_converter_is_told(product: Product, told: Told, serve: Serve) -> None:
    if "stale_product" not in get_converters():
        register_converter(ProductConverter, "stale_product")
    assert serve(sells_converted, "product/<stale_product:product>").post("/product/1").status_code == 200
    (message,) = told
    assert "in ProductConverter.to_python: return Product.objects.get" in message


async def sells_async(request: HttpRequest, id: int) -> HttpResponse:
    product = await Product.objects.aget(id=id)
    async with locks.lock(f"product_{id}"):
        product.stock -= 1
        await product.asave()
    return HttpResponse("sold")


async def sells_fresh_async(request: HttpRequest, id: int) -> HttpResponse:
    product = await Product.objects.aget(id=id)
    async with locks.lock(f"product_{id}"):
        await product.arefresh_from_db()
        product.stock -= 1
        await product.asave()
    return HttpResponse("sold")


def test_an_async_view_is_told_with_its_lines(product: Product, told: Told, serve: Serve) -> None:
    assert serve(sells_async).post("/product/1").status_code == 200
    (message,) = told
    assert "in sells_async: product = await Product.objects.aget(id=id)" in message
    assert "in sells_async: await product.asave()" in message


def test_an_async_view_that_reads_again_is_not_told(product: Product, told: Told, serve: Serve) -> None:
    assert serve(sells_fresh_async).post("/product/1").status_code == 200
    assert not told


# -- what is done with a row that was loaded before the lock ----------------------------------------------


def changes_another_field(product: Product) -> None:
    product.name = "pencil"
    product.save()


def saves_as_it_is(product: Product) -> None:
    product.save()


def changes_a_list(product: Product) -> None:
    product.tags.append("sold")
    product.save(update_fields=["tags"])


def reads_one_field_again(product: Product) -> None:
    product.refresh_from_db(fields=["name"])
    product.stock -= 1
    product.save()


def saves_twice(product: Product) -> None:
    for _ in range(2):
        product.stock -= 1
        product.save()


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        (changes_another_field, "name"),
        (saves_as_it_is, "name, stock, version, tags, sold_at"),
        (changes_a_list, "tags"),
        (reads_one_field_again, "stock"),
        (saves_twice, "stock"),
    ],
)
def test_what_is_told(product: Product, told: Told, act: Callable[[Product], None], fields: str) -> None:
    loaded = Product.objects.get(id=1)
    with locks.lock("product_1"):
        act(loaded)
    (message,) = told
    assert f"has written to {fields} in between" in message


def refreshes(product: Product) -> None:
    product.refresh_from_db()
    product.stock -= 1
    product.save()


def refreshes_what_it_writes(product: Product) -> None:
    product.refresh_from_db(fields=["stock"])
    product.stock -= 1
    product.save(update_fields=["stock"])


def loads_again(product: Product) -> None:
    sell(Product.objects.get(pk=product.pk))


def selects_for_update(product: Product) -> None:
    with transaction.atomic():
        sell(Product.objects.select_for_update().get(pk=product.pk))


def refreshes_for_update(product: Product) -> None:
    with transaction.atomic():
        product.refresh_from_db(from_queryset=Product.objects.select_for_update())
        sell(product)


def computes_in_the_database(product: Product) -> None:
    product.stock = F("stock") - 1  # type: ignore[assignment]
    product.save()


def computes_one_field(product: Product) -> None:
    product.stock = F("stock") - 1  # type: ignore[assignment]
    product.save(update_fields=["stock"])


def updates_by_an_expression(product: Product) -> None:
    Product.objects.filter(pk=product.pk, stock__gte=1).update(stock=F("stock") - 1)


def notes_a_moment(product: Product) -> None:
    product.sold_at = timezone.now()
    product.save(update_fields=["sold_at"])


def makes_a_new_one(product: Product) -> None:
    made = Product.objects.create(stock=product.stock)
    made.stock -= 1
    made.save()


def makes_many(product: Product) -> None:
    for made in Product.objects.bulk_create([Product(id=7), Product(id=8)]):
        sell(made)


@pytest.mark.parametrize(
    "act",
    [
        refreshes,
        refreshes_what_it_writes,
        loads_again,
        selects_for_update,
        refreshes_for_update,
        computes_in_the_database,
        computes_one_field,
        updates_by_an_expression,
        notes_a_moment,
        makes_a_new_one,
        makes_many,
    ],
)
def test_what_is_not_told(product: Product, told: Told, act: Callable[[Product], object]) -> None:
    loaded = Product.objects.get(id=1)
    with locks.lock("product_1"):
        act(loaded)
    assert not told


def test_a_field_that_nobody_had_read_is_not_told(product: Product, told: Told) -> None:
    loaded = Product.objects.only("name").get(id=1)
    with locks.lock("product_1"):
        loaded.stock = 5
        loaded.save(update_fields=["stock"])
    assert not told


def test_a_field_that_was_read_later_is_told(product: Product, told: Told) -> None:
    loaded = Product.objects.only("name").get(id=1)
    assert loaded.stock == 10
    with locks.lock("product_1"):
        loaded.stock -= 1
        loaded.save(update_fields=["stock"])
    (message,) = told
    assert "assert loaded.stock == 10" in message


def test_an_update_that_names_the_version_is_not_told(product: Product, told: Told) -> None:
    Versioned.objects.create(id=1)
    loaded = Versioned.objects.get(id=1)
    with locks.lock("product_1"):
        loaded.stock -= 1
        loaded.save()
    assert not told


def test_rows_that_were_made_before_the_lock_are_not_told(product: Product, told: Told) -> None:
    made = [Product.objects.create(), *Product.objects.bulk_create([Product(id=9)])]
    with locks.lock("product_1"):
        for one in made:
            sell(one)
    assert not told


def test_the_outermost_lock_counts(product: Product, told: Told) -> None:
    with locks.lock("shop"):
        loaded = Product.objects.get(id=1)
        with locks.lock("product_1"):
            sell(loaded)
    assert not told


def test_a_semaphore_is_no_lock(product: Product, told: Told) -> None:
    loaded = Product.objects.get(id=1)
    with locks.semaphore("tills", limit=2):
        sell(loaded)
    assert not told


def test_without_a_lock_nothing_is_told(product: Product, told: Told) -> None:
    loaded = Product.objects.get(id=1)
    with locks.lock("product_1"):
        pass
    sell(loaded)
    assert not told


def test_what_counts_as_read_is_not_told(product: Product, told: Told) -> None:
    """As where the guard itself has compared the row."""
    loaded = Product.objects.get(id=1)
    with locks.lock("product_1"):
        note_read(loaded)
        sell(loaded)
    assert not told


def test_a_copy_from_a_cache_is_told(product: Product, told: Told) -> None:
    User.objects.create(username="ann")
    copied = pickle.loads(pickle.dumps(User.objects.get()))
    with locks.lock(f"user_{copied.pk}"):
        copied.email = "ann@example.org"
        copied.save()
    assert len(told) == 1


# -- what queries write to a row that the same request has loaded -----------------------------------------


def updates(product: Product) -> None:
    Product.objects.filter(pk=product.pk).update(stock=product.stock - 1)


def updates_many(product: Product) -> None:
    product.stock -= 1
    Product.objects.bulk_update([product], ["stock"])


def saves_another_instance(product: Product) -> None:
    Product(pk=product.pk, stock=product.stock - 1).save()


def selects_for_update_in_vain(product: Product) -> None:
    Product.objects.select_for_update().get(pk=product.pk)
    product.stock -= 1
    product.save()


def updates_what_it_compares(product: Product) -> None:
    Product.objects.filter(pk=product.pk, stock=product.stock).update(stock=product.stock - 1)


def updates_after_it_was_read_again(product: Product) -> None:
    fresh = Product.objects.get(pk=product.pk)
    Product.objects.filter(pk=product.pk).update(stock=fresh.stock - 1)


def saves_what_was_read_again(product: Product) -> None:
    product.stock = Product.objects.get(pk=product.pk).stock - 1
    product.save(update_fields=["stock"])


def updates_another_row(product: Product) -> None:
    Product.objects.create(pk=2)
    Product.objects.filter(pk=2).update(stock=1)


def updates_a_moment(product: Product) -> None:
    Product.objects.filter(pk=product.pk).update(sold_at=timezone.now())


def updates_many_by_expressions(product: Product) -> None:
    product.stock = F("stock") - 1  # type: ignore[assignment]
    Product.objects.bulk_update([product], ["stock"])


@pytest.mark.parametrize(
    ("act", "is_told"),
    [
        (updates, True),
        (updates_many, True),
        (selects_for_update_in_vain, True),
        (saves_another_instance, False),
        (updates_what_it_compares, False),
        (updates_after_it_was_read_again, False),
        (updates_by_an_expression, False),
        (updates_many_by_expressions, False),
        (saves_what_was_read_again, False),
        (updates_another_row, False),
        (updates_a_moment, False),
        (computes_one_field, False),
        (notes_a_moment, False),
        (refreshes, False),
        (makes_many, False),
    ],
)
def test_queries_of_a_request(
    product: Product, told: Told, serve: Serve, act: Callable[[Product], object], is_told: bool
) -> None:
    def acts(request: HttpRequest, id: int) -> HttpResponse:
        loaded = Product.objects.get(id=id)
        with locks.lock(f"product_{id}"), transaction.atomic():
            act(loaded)
        return HttpResponse("done")

    assert serve(acts).post("/product/1").status_code == 200
    assert len(told) == is_told
    if is_told:
        assert "has written to stock in between" in told[0]
        assert "acts: loaded = Product.objects.get(id=id)" in told[0]
        assert f"in {act.__name__}: " in told[0]


async def updates_async(request: HttpRequest, id: int) -> HttpResponse:
    product = await Product.objects.aget(id=id)
    async with locks.lock(f"product_{id}"):
        await Product.objects.filter(id=id).aupdate(stock=product.stock - 1)
    return HttpResponse("sold")


async def answer_by_asgi(path: str) -> Any:
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    request = ApplicationCommunicator(get_asgi_application(), scope)  # type: ignore[no-untyped-call]
    await request.send_input({"type": "http.request", "body": b""})
    answer = await request.receive_output(30)
    await request.wait(30)
    return answer


def test_an_update_of_an_async_view_is_told(product: Product, told: Told, serve: Serve) -> None:
    assert serve(updates_async).post("/product/1").status_code == 200
    assert asyncio.run(answer_by_asgi("/product/1"))["status"] == 200
    assert len(told) == 2
    for message in told:
        assert "in updates_async: product = await Product.objects.aget(id=id)" in message
        assert "in updates_async: await Product.objects.filter(id=id).aupdate(" in message


def test_one_request_knows_nothing_of_the_rows_of_another(product: Product, told: Told, serve: Serve) -> None:
    def loads_or_resets(request: HttpRequest, id: int) -> HttpResponse:
        if request.method == "GET":
            return HttpResponse(Product.objects.get(id=id).name)
        with locks.lock(f"product_{id}"):
            Product.objects.filter(id=id).update(stock=10)
        return HttpResponse("reset")

    client = serve(loads_or_resets)
    assert client.get("/product/1").status_code == client.post("/product/1").status_code == 200
    assert not told


def submits(basket: Basket, name: str) -> None:
    with locks.lock(name):
        for status in ("frozen", "submitted"):
            basket.status = status
            basket.save()


def basket_of_ann(owned: bool = True) -> Basket:
    ann, _ = User.objects.get_or_create(id=5, username="ann")
    made = Basket.objects.create(owner=ann if owned else None)
    return Basket.objects.get(pk=made.pk)


def test_a_basket_is_told_only_if_two_requests_submit_it_at_once(product: Product, told: Told) -> None:
    """The lock is the product's: other baskets have nothing to do with it."""
    baskets = [basket_of_ann() for _ in range(3)]
    double_click = Basket.objects.get(pk=baskets[0].pk)
    for basket in baskets:
        submits(basket, "product_1")
    # Once more, as after a payment.
    submits(Basket.objects.get(pk=baskets[0].pk), "product_1")
    assert not told
    submits(double_click, "product_1")
    (message,) = told
    assert message.startswith(f"Basket {double_click.pk} was loaded before the lock 'product_1'")


@pytest.mark.parametrize("name", ["basket_1", "user_5", "owner_5"])
def test_a_basket_is_told_where_the_lock_is_meant_for_it(product: Product, told: Told, name: str) -> None:
    submits(basket_of_ann(), name)
    assert len(told) == 1


def test_a_basket_of_nobody_is_told(product: Product, told: Told) -> None:
    submits(basket_of_ann(owned=False), "product_1")
    assert len(told) == 1


# -- on and off -------------------------------------------------------------------------------------------


def test_a_setting_makes_it_an_error(product: Product, settings: Any, serve: Serve) -> None:
    settings.DISTLOCK_STALE_WRITES = "raise"
    with pytest.raises(StaleWrite, match="Product 1 was loaded before the lock 'product_1'"):
        serve(LoadsInSetup.as_view()).post("/product/1")
    product.refresh_from_db()
    assert product.stock == 10


def listeners() -> list[object]:
    signals: list[Any] = [request_started, post_init, pre_save, post_save, connection_created]
    found = [one for signal in signals for one in signal.receivers if "stale_writes" in str(one[0])]
    # The debug toolbar, which other tests load, has one of its own.
    ours = [one for one in connection.execute_wrappers if "stale_writes" in str(one.__module__)]
    return [*found, *ours]


@pytest.mark.parametrize("setting", [None, "off", "warn"])
def test_outside_of_debug_mode_nothing_listens(product: Product, settings: Any, setting: str | None) -> None:
    assert len(listeners()) == 6
    settings.DEBUG = False
    assert not listeners()
    settings.DISTLOCK_STALE_WRITES = setting
    assert bool(listeners()) == (setting == "warn")


def test_a_setting_without_meaning_is_refused(settings: Any) -> None:
    with pytest.raises(ConfigurationError, match='DISTLOCK_STALE_WRITES is True: write "warn", "raise"'):
        settings.DISTLOCK_STALE_WRITES = True


def test_a_loop_that_saves_at_two_lines_in_turns_is_told_once_for_each(product: Product, told: Told) -> None:
    Product.objects.bulk_create([Product(id=number) for number in range(2, 7)])
    rows = iter(list(Product.objects.order_by("id")))
    with locks.lock("stock"):
        for row in rows:
            row.save()
            next(rows).save()
    assert [message.split(" was loaded")[0] for message in told] == ["Product 1", "Product 2"]
