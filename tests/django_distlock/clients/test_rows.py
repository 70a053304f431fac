"""The backend ``database`` in Django: what a guard and a ``with`` block do, and what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import IntegrityError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from rest_framework.views import APIView

from distlock import current_grant
from distlock.errors import ConfigurationError, NotHeld
from distlock.testing.waits import engine_of
from django_distlock import distributed_lock, locks
from django_distlock.conf import clients
from django_distlock.models import FenceRow
from django_distlock.signals import lock_acquired, lock_refused, lock_released
from tests.redis_server import eventually

Serve = Callable[..., Client]

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def rows(settings: Any) -> None:
    settings.DISTLOCK = {
        "default": {"BACKEND": "database", "PREFIX": "shop", "TIMEOUT": 5},
        "other": {"BACKEND": "database", "LOCATION": "other"},
    }


def guarded(inside: Callable[[], object], **words: Any) -> Callable[..., HttpResponse]:
    @distributed_lock("product_<id>", **words)
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse(str(inside()))

    return view


def test_a_view_is_one_transaction_and_its_row_tells_the_fence(serve: Serve) -> None:
    def inside() -> object:
        assert connection.in_atomic_block
        return current_grant().fence.number

    client = serve(guarded(inside))
    assert [client.post("/product/1").content for _ in range(3)] == [b"1", b"2", b"3"]
    row = FenceRow.objects.get()
    assert (row.namespace, row.name, row.epoch, row.number) == ("shop", "product_1", 1, 3)


def test_location_names_another_database(serve: Serve) -> None:
    def inside() -> object:
        number = current_grant().fence.number
        return connections["other"].in_atomic_block, connection.in_atomic_block, number

    assert serve(guarded(inside, alias="other")).post("/product/1").content == b"(True, False, 1)"
    assert FenceRow.objects.using("other").count() == 1
    assert not FenceRow.objects.exists()


def test_a_view_that_fails_leaves_no_row(serve: Serve) -> None:
    def fail() -> None:
        raise IntegrityError

    with pytest.raises(IntegrityError):
        serve(guarded(fail)).post("/product/1")
    assert not FenceRow.objects.exists()
    assert serve(guarded(lambda: current_grant().fence.number)).post("/product/1").content == b"1"


def test_a_guard_on_the_same_name_inside_is_the_same_lock(serve: Serve) -> None:
    @distributed_lock("product_1")
    def inner() -> int:
        return current_grant().fence.number

    assert serve(guarded(inner)).post("/product/1").content == b"1"


def test_a_guard_on_another_name_inside_is_refused(serve: Serve) -> None:
    @distributed_lock("product_2")
    def inner() -> None: ...

    with pytest.raises(ConfigurationError, match="name all locks in one place"):
        serve(guarded(inner)).post("/product/1")


def test_rest_framework_has_it_too(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    class Buy(APIView):
        def post(self, request: Any, id: int) -> HttpResponse:
            return HttpResponse(str(current_grant().fence.number))

    assert serve(Buy.as_view()).post("/product/1").content == b"1"


def test_a_rule_has_it_too(rules: Callable[..., Client]) -> None:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse(str(current_grant().fence.number))

    assert rules(view).post("/product/1").content == b"1"


def test_who_would_wait_in_vain_is_answered_503_without_a_look_at_the_database(
    serve: Serve, settings: Any
) -> None:
    settings.DISTLOCK = {"default": {"BACKEND": "database", "PREFIX": "shop", "MAX_WAITERS_TOTAL": 1}}
    client = serve(guarded(lambda: "sold"))
    queues = engine_of(clients["default"]).queues
    queries: list[str] = []

    def wait() -> None:
        try:
            with locks.lock("product_1", timeout=60):
                pass
        finally:
            connections.close_all()

    def come() -> Any:
        # This thread has no connection, and gets none.
        with connection.execute_wrapper(lambda *query: queries.append(query[1])):
            return client.post("/product/1")

    with ThreadPoolExecutor(2) as pool:
        with locks.lock("product_1"):
            waiting = pool.submit(wait)
            eventually(lambda: queues.waiting == 1, "somebody waits")
            answer = pool.submit(come).result(60)
        waiting.result(60)
    assert (answer.status_code, answer.json()["code"], queries) == (503, "lock_queue_full", [])
    assert client.post("/product/1").content == b"sold"


def test_signals_are_sent_when_the_row_is_locked_and_when_it_is_not(serve: Serve) -> None:
    heard: list[object] = []

    def acquired(sender: object, grant: Any, **others: object) -> None:
        heard.append(("acquired", grant.fence.number))

    def released(sender: object, grant: Any, **others: object) -> None:
        heard.append("released")

    def refused(sender: object, error: Exception, **others: object) -> None:
        heard.append("refused")

    lock_acquired.connect(acquired)
    lock_released.connect(released)
    lock_refused.connect(refused)
    try:
        serve(guarded(lambda: heard.append("view"))).post("/product/1")
        assert heard == [("acquired", 1), "view", "released"]
    finally:
        lock_acquired.disconnect(acquired)
        lock_released.disconnect(released)
        lock_refused.disconnect(refused)


def test_an_async_view_is_refused_with_what_to_write(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        raise AssertionError

    with pytest.raises(ConfigurationError, match="Write a plain 'def', or write the guard on the function"):
        serve(view).post("/product/1")


def test_a_with_block_is_a_transaction() -> None:
    with locks.lock("product_1", "product_2") as grant:
        assert connection.in_atomic_block
        assert {name: fence.number for name, fence in grant.fences.items()} == {
            "product_1": 1,
            "product_2": 1,
        }
    assert not connection.in_atomic_block
    assert FenceRow.objects.count() == 2
    with pytest.raises(IntegrityError), locks.lock("product_1"):
        raise IntegrityError
    assert FenceRow.objects.get(name="product_1").number == 1


def test_a_with_block_in_a_transaction_is_refused() -> None:
    with (
        transaction.atomic(),
        pytest.raises(ConfigurationError, match=r"outside of every transaction: its block is one"),
        locks.lock("product_1"),
    ):
        raise AssertionError


def test_a_row_is_locked_by_with_only() -> None:
    lock = locks.lock("product_1")
    for refused in (lock.acquire, lock.release, lambda: lock.acquire(timeout=0)):
        with pytest.raises(ConfigurationError, match=r"write 'with locks.lock\(…\):'"):
            refused()
    with pytest.raises(ConfigurationError, match="sync_to_async"):
        asyncio.run(lock.aacquire())
    with pytest.raises(ConfigurationError, match="sync_to_async"):
        asyncio.run(locks["default"].ainspect("product_1"))
    with pytest.raises(ConfigurationError, match="sync_to_async"):
        locks["default"].alist()
    with pytest.raises(ConfigurationError, match="can't be an rlock"):
        locks.rlock("product_1")
    with pytest.raises(ConfigurationError, match="in_transaction=True, and the lock is a row"):
        locks.lock("product_1", in_transaction=True)
    with pytest.raises(ConfigurationError, match="has no ttl"), locks.lock("product_1", ttl=3):
        raise AssertionError
    with pytest.raises(ConfigurationError, match="is not known: try to lock it"):
        lock.locked()


def test_what_did_not_lock_the_row_is_not_committed() -> None:
    """A grant without its transaction keeps out this process only, and says so."""
    from django_distlock.conf import clients

    with (
        clients["default"].lock("product_1") as grant,
        pytest.raises(NotHeld, match="before the transaction"),
    ):
        grant.check()


def test_the_check_knows_the_backend_and_its_database(settings: Any) -> None:
    settings.DISTLOCK = {"default": {"BACKEND": "database"}}
    call_command("check")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"ttl": 3}, "where a lock has no ttl"),
        ({"fence": False}, "leave fence= out"),
        ({"alias": "nowhere"}, "'nowhere' names no database of DATABASES"),
    ],
)
def test_the_check_finds_what_a_row_can_t_do(
    serve: Serve, settings: Any, words: dict[str, object], problem: str
) -> None:
    settings.DISTLOCK |= {"nowhere": {"BACKEND": "database", "LOCATION": "nowhere"}}
    serve(guarded(pytest.fail, **words))
    with pytest.raises(SystemCheckError, match=problem):
        call_command("check")


def test_the_check_finds_async_views(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        raise AssertionError

    serve(view)
    with pytest.raises(SystemCheckError, match="is async and is locked by a row"):
        call_command("check")
