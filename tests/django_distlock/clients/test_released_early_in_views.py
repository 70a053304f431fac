"""A lock that a view, its middleware or a TestCase releases inside of a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase, override_settings

from distlock import current_grant
from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks
from tests.django_distlock.clients.early_releases import (
    EARLY,
    anyones,
    by_grant,
    by_lock,
    configured,
    is_rolled_back,
    told,
    write,
)
from tests.django_distlock.watching import by_asgi, leaving

Serve = Callable[..., Client]

__all__ = ["configured"]


@anyones
def test_a_guard_whose_view_releases_it_commits_nothing(serve: Serve, atomic_requests: None) -> None:
    @distributed_lock("product_<int:id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        write()
        current_grant().release()
        return HttpResponse("sold")

    with pytest.raises(Exception, match="product_1"):
        serve(view).post("/product/1")
    assert is_rolled_back()


class Takes:
    """A middleware that takes the lock, outside of the view's transaction."""

    def __init__(self, get_response: Callable[[Any], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> HttpResponse:
        request.release = by_grant(locks.lock("product_1"))
        return self.get_response(request)


@anyones
def test_a_view_that_releases_before_the_commit_of_its_request_sells_nothing(
    serve: Serve, atomic_requests: None, settings: Any
) -> None:
    settings.MIDDLEWARE = [f"{__name__}.Takes"]

    def view(request: Any, id: int) -> HttpResponse:
        write()
        request.release()
        return HttpResponse("sold")

    with told():
        serve(view).post("/product/1")
    assert is_rolled_back()


@pytest.mark.parametrize("kind", ["lock", "rlock"])
@anyones
def test_an_async_release_in_a_transaction_is_told(
    serve: Serve, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def begin() -> None:
        transaction.set_autocommit(False)
        write()

    async def view(request: HttpRequest, id: int) -> HttpResponse:
        grant = await getattr(locks, kind)("product_1").aacquire()
        await sync_to_async(begin)()
        await grant.arelease()
        return HttpResponse("sold")

    serve(view)
    assert by_asgi("POST", "/product/1") == 500
    assert EARLY in caplog.text
    assert not Group.objects.exists()
    assert not locks.lock("product_1").locked()


@pytest.mark.parametrize("kind", ["lock", "rlock"])
@anyones
def test_an_async_release_waits_for_what_its_request_runs_when_the_client_has_gone(
    serve: Serve, kind: str
) -> None:
    begun, go, held = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert go.wait(30)
        held.append(locks.lock("product_1").locked())

    async def view(request: HttpRequest, id: int) -> HttpResponse:
        lock = getattr(locks, kind)(f"product_{id}")
        assert await lock.aacquire() is not None
        try:
            await sync_to_async(work)()
        finally:
            await lock.arelease()
        return HttpResponse("sold")

    serve(view)
    leaving("/product/1", begun, go)
    assert held == [True]
    assert not locks.lock("product_1").locked()


@override_settings(DISTLOCK="memory://released-early-cases")
class InATestCase(TestCase):
    def test_the_transaction_of_the_test_is_none(self) -> None:
        for kind in (locks.lock, locks.rlock):
            by_grant(kind("product_1"))()
            by_lock(kind("product_1"))()
            with kind("product_1"), transaction.atomic():
                write(str(kind))
        assert Group.objects.count() == 2

    def test_one_of_the_code_is_one_here_too_and_the_test_goes_on(self) -> None:
        write("of the test")
        release = by_grant(locks.lock("product_1"))
        with told(), transaction.atomic():
            write()
            with transaction.atomic():
                write("inner")
                release()
        assert [group.name for group in Group.objects.all()] == ["of the test"]

    def test_nothing_is_committed_where_the_error_is_caught_and_the_test_goes_on(self) -> None:
        write("of the test")
        release = by_grant(locks.lock("product_1"))
        with transaction.atomic():
            write()
            with suppress(ConfigurationError), transaction.atomic():
                write("inner")
                release()
        assert [group.name for group in Group.objects.all()] == ["of the test"]
