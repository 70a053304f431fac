"""A user whose authentication changes while the request waits for its lock, one function a case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import auth
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Permission
from django.db import connection
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.utils.functional import SimpleLazyObject
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.response import Response
from rest_framework.views import APIView

from django_distlock import distributed_lock
from tests.django_distlock.fresh.asking import (
    GUARD,
    after_loading,
    ask,
    load,
    new_alice,
    others,
    serving,
)
from tests.django_distlock.fresh.bank.models import Customer


def reached(request: Any) -> None:
    request.reached = True


CHANGES: dict[str, Callable[[], object]] = {
    "row gone": lambda: Customer.objects.all().delete(),
    "inactive": lambda: others(is_active=False),
    "password": lambda: others(password=make_password("other")),
}


GUARDS = [
    GUARD,
    distributed_lock("user_<user.pk>", fence=True),
    distributed_lock("user_<user.pk>", fence=True, batch=32),
]


def case_a_user_who_may_not_log_in_any_more_is_refused() -> None:
    inside: list[Any] = []
    for change in CHANGES.values():
        for guard in GUARDS:
            new_alice()
            assert ask(after_loading(change), inside.append, guard) == 403
        new_alice()
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            assert ask(after_loading(change), inside.append) == 403
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert inside == []


def case_what_else_changes_is_no_reason() -> None:
    for fields in ({"last_login": None}, {"email": "alice@example.com"}, {"is_staff": True}):
        new_alice()
        assert ask(after_loading(partial(others, **fields)), reached) == 200


def case_a_cycled_key_is_no_reason() -> None:
    alice = new_alice()

    def before(request: Any) -> None:
        load(request)
        # A second login, from the same browser.
        auth.login(request, alice)
        others(balance=2)

    assert ask(before, reached) == 200


def case_a_user_who_was_inactive_all_along_is_no_reason() -> None:
    new_alice(is_active=False)
    backends = ["django.contrib.auth.backends.AllowAllUsersModelBackend"]
    assert ask(after_loading(lambda: others(balance=2)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    new_alice()
    assert (
        ask(after_loading(lambda: others(is_active=False)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    )


class Anybody(BaseBackend):
    """Knows nothing of inactive users."""

    def get_user(self, user_id: Any) -> Any:
        return Customer.objects.get(pk=user_id)


def case_a_backend_that_takes_inactive_users() -> None:
    backends = [f"{__name__}.Anybody"]
    new_alice(is_active=False)
    assert ask(after_loading(lambda: others(balance=2)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    new_alice()
    change = after_loading(lambda: others(is_active=False))
    assert ask(change, reached, AUTHENTICATION_BACKENDS=backends) == 403


def case_somebody_who_is_impersonated_is_no_reason() -> None:
    for change in ("is_active", "delete"):
        new_alice()
        bob = Customer.objects.create_user("bob", balance=5)

        def before(request: Any, change: str = change, bob: Any = bob) -> None:
            request.impersonator = request.user
            assert request.impersonator.pk
            request.user = SimpleLazyObject(lambda: Customer.objects.get(pk=bob.pk))
            request.user.impersonated_by = request.impersonator
            if change == "delete":
                Customer.objects.filter(pk=bob.pk).delete()
            else:
                Customer.objects.filter(pk=bob.pk).update(is_active=False, balance=2)

        def view(request: Any, change: str = change) -> None:
            assert request.user.impersonated_by is request.impersonator
            assert request.user.balance == (5 if change == "delete" else 2)

        assert ask(before, view) == 200


def rest(authentication: type, change: Callable[[], object]) -> Any:
    class Authentication(authentication):  # type: ignore[misc, valid-type]
        def authenticate(self, request: Any) -> Any:
            found = super().authenticate(request)
            change()
            return found

    class Spend(APIView):  # type: ignore[misc]  # REST framework has no types
        authentication_classes = [Authentication]

        def post(self, request: Any) -> Response:
            return Response(request.user.is_active)

    return GUARD(Spend).as_view()


def case_in_rest_framework_it_is_the_session_alone() -> None:
    for change in CHANGES.values():
        for authentication, status in ((TokenAuthentication, 200), (SessionAuthentication, 403)):
            alice = new_alice()
            token = Token.objects.create(user=alice)
            client = Client()
            client.force_login(alice)
            headers = {"authorization": f"Token {token.key}"}
            # Something else has used the session.
            with serving(rest(authentication, change), lambda request: request.session.get("cart"), None):
                assert client.post("/spend", headers=headers).status_code == status, authentication


def case_async_views_refuse_too() -> None:
    async def view(request: Any) -> HttpResponse:
        return HttpResponse(f"{(await request.auser()).balance}")

    for change, status in (*((one, 403) for one in CHANGES.values()), (lambda: others(balance=2), 200)):
        alice = new_alice()
        first = Client()
        first.force_login(alice)
        client = AsyncClient()
        client.cookies = first.cookies
        with serving(GUARD(view), lambda request, change=change: change(), None):
            response = asyncio.run(client.post("/spend"))
        assert response.status_code == status
        assert status == 403 or response.content == b"2"


def case_a_permission_that_was_given_meanwhile() -> None:
    alice = new_alice()

    def before(request: Any) -> None:
        assert not request.user.has_perm("bank.add_plan")
        alice.user_permissions.add(Permission.objects.get(codename="add_plan"))
        others(is_staff=True)

    def view(request: Any) -> None:
        # The cache of permissions is no field.
        assert not request.user.has_perm("bank.add_plan")
        assert request.user.is_staff

    assert ask(before, view) == 200
