"""Django REST framework under ATOMIC_REQUESTS: its errors roll back what the view has done, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.utils.decorators import method_decorator
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_distlock import locks
from tests.django_distlock.guarding.rest_views import ALICE, Buy, Policies, by_rule, lock, subclass

Serve = Callable[..., Client]


class Failing(Policies, APIView):
    permission_classes: list[Any] = []

    def post(self, request: Request, id: int) -> Response:
        Group.objects.create(name="sold")
        if id == 1:
            raise ValidationError("sold out")
        raise ZeroDivisionError


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["class", "dispatch", "rule"])
class TestUnderAtomicRequests:
    def make(self, how: str, cls: Any) -> Any:
        if how == "class":
            return lock(subclass(cls)).as_view()
        if how == "dispatch":
            return method_decorator(lock, name="dispatch")(subclass(cls)).as_view()
        return by_rule(cls.as_view())

    def test_what_is_not_locked_is_atomic_as_ever(
        self, serve: Serve, atomic_requests: None, how: str
    ) -> None:
        client = serve(self.make(how, Buy))
        assert client.get("/product/1", headers=ALICE).json() == "False True"
        assert client.post("/product/1", headers=ALICE).json() == "True True"

    def test_an_error_of_the_view_is_rolled_back_and_handled_once(
        self, serve: Serve, atomic_requests: None, how: str
    ) -> None:
        handled: list[bool] = []

        class Noting(Failing):
            def handle_exception(self, error: Exception) -> Any:
                handled.append(locks.lock("product_1").locked() and connection.in_atomic_block)
                return super().handle_exception(error)

        client = serve(self.make(how, Noting))
        assert client.post("/product/1").json() == ["sold out"]
        with pytest.raises(ZeroDivisionError):
            client.post("/product/2")
        assert handled[0] is True
        assert len(handled) == 2
        assert not Group.objects.exists()

    def test_a_lock_that_is_lost_before_commit_is_rolled_back_and_answered(
        self, serve: Serve, atomic_requests: None, how: str
    ) -> None:
        class Losing(Failing):
            def post(self, request: Request, id: int) -> Response:
                Group.objects.create(name="sold")
                locks.close_all()
                return Response("sold")

        response = serve(self.make(how, Losing)).post("/product/1")
        assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
        assert not Group.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["class", "dispatch", "rule"])
def test_in_a_test_case_errors_leave_its_transaction_alone(
    serve: Serve, atomic_requests: None, settings: Any, how: str
) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://rest", "TIMEOUT": 0}}
    Group.objects.create(name="there")
    client = serve(TestUnderAtomicRequests().make(how, Buy))
    assert client.post("/product/1").status_code == 401
    with locks.lock("product_1"):
        assert client.post("/product/1", headers=ALICE).status_code == 423
    assert serve(TestUnderAtomicRequests().make(how, Failing)).post("/product/1").status_code == 400
    assert [group.name for group in Group.objects.all()] == ["there"]


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["class", "dispatch", "rule"])
def test_in_a_test_case_a_method_that_nobody_answers_leaves_its_transaction_alone(
    serve: Serve, atomic_requests: None, how: str
) -> None:
    client = serve(TestUnderAtomicRequests().make(how, Buy))
    Group.objects.create(name="of the test")
    assert client.delete("/product/1", headers=ALICE).status_code == 405
    assert Group.objects.count() == 1
