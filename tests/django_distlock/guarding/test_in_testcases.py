"""Guarded and fenced views in Django's own test cases: inside a test's transaction, and outside of one."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import TestCase, TransactionTestCase, override_settings
from django.urls import path

from distlock import current_grant
from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks
from django_distlock.models import FenceRow

seen: list[Any] = []


@distributed_lock("product_<int:id>", fence=True)
def fenced(request: HttpRequest, id: int) -> HttpResponse:
    seen.append((locks.lock("product_1").locked(), connection.in_atomic_block))
    transaction.on_commit(lambda: seen.append("committed"))
    if "fail" in request.GET:
        raise ZeroDivisionError
    return HttpResponse(str(current_grant().fence.number))


urlpatterns = [path("<int:id>", fenced), path("above/<int:id>", transaction.atomic(fenced))]


class Purchases:
    """What holds in every kind of test case."""

    def setUp(self) -> None:
        seen.clear()

    def test_a_view_is_locked_and_fenced_as_often_as_it_is_asked(self: Any) -> None:
        numbers = [int(self.client.post("/1").content) for _ in range(3)]
        assert numbers == sorted(set(numbers))
        assert FenceRow.objects.get(name="product_1").number == numbers[-1]
        assert [one for one in seen if one != "committed"] == [(True, True)] * 3

    def test_a_view_that_raises_gives_the_lock_back_and_the_test_goes_on(self: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            self.client.post("/1?fail")
        assert self.client.post("/1").status_code == 200

    def test_what_would_be_refused_is_refused_here_too(self: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"Write @distributed_lock above whatever opens it, transaction\.atomic"
        ):
            self.client.post("/above/1")


@override_settings(ROOT_URLCONF=__name__)
class InATestCase(Purchases, TestCase):
    def test_hooks_of_commit_run_where_the_test_asks_for_them(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            self.client.post("/1")
            assert "committed" not in seen
        assert "committed" in seen


@override_settings(ROOT_URLCONF=__name__)
class InATransactionTestCase(Purchases, TransactionTestCase):
    def test_hooks_of_commit_run(self) -> None:
        self.client.post("/1")
        assert seen == [(True, True), "committed"]
