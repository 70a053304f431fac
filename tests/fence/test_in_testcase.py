"""A site's own tests: `TestCase` has a transaction open around each of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase
from django.urls import path

import distlock
from distlock import current_grant
from django_distlock import atomic, distributed_lock, locks
from django_distlock.models import FenceRow


@distributed_lock("product_<id>", fence=True)
def fenced(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(current_grant().fence.number))


@distributed_lock("product_<id>")
def fences_itself(request: HttpRequest, id: int) -> HttpResponse:
    with atomic(current_grant()):
        return HttpResponse(str(current_grant().fence.number))


class Urls:
    urlpatterns = [path("fenced/<int:id>", fenced), path("itself/<int:id>", fences_itself)]


@pytest.fixture(autouse=True)
def _urls(settings: Any) -> None:
    settings.ROOT_URLCONF = Urls


class TestASite(TestCase):
    def test_a_fenced_view_can_be_tested(self) -> None:
        for url in ("/fenced/1", "/itself/1"):
            answers = [Client().post(url).content for _ in range(2)]
            assert int(answers[0]) < int(answers[1]) == FenceRow.objects.get().number

    def test_nothing_is_left_for_the_next_test(self) -> None:
        assert not FenceRow.objects.exists()

    def test_ones_own_transaction_can_be_tested(self) -> None:
        with locks.lock("product_1") as grant, atomic(grant):
            assert FenceRow.objects.get().number == grant.fence.number


def test_locks_that_do_nothing_pass_the_fence(settings: Any, db: None) -> None:
    settings.DISTLOCK = "dummy://"
    assert [Client().post("/fenced/1").status_code for _ in range(2)] == [200, 200]
    assert isinstance(locks["default"], distlock.Locks)
