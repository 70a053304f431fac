"""Sixteen requests of one customer at once, who has five coins: each has loaded its user before the lock."""

from __future__ import annotations

import asyncio
import base64
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.utils.decorators import sync_and_async_middleware
from django.views import View
from ninja import NinjaAPI
from ninja.security import HttpBearer
from rest_framework.authentication import (
    BasicAuthentication,
    RemoteUserAuthentication,
    SessionAuthentication,
    TokenAuthentication,
)
from rest_framework.authtoken.models import Token
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.views import APIView

from django_distlock import distributed_lock
from tests.django_distlock.fresh.bank.models import Customer, Profile

BUYERS, COINS = 16, 5
#: Where all wait for each other, once they have loaded their user.
MIDDLEWARE = f"{__name__}.wait_for_all"

#: One for each arrangement that has run, because a barrier that was left early lets nobody pass again.
_loaded: list[threading.Barrier] = []
#: Those of event loops.
_tasks: list[asyncio.Barrier] = []


@sync_and_async_middleware
def wait_for_all(get_response: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            await request.auser()
            await sync_to_async(lambda: request.user.pk)()
            async with asyncio.timeout(100):
                await _tasks[-1].wait()
            return await get_response(request)

    else:

        def middleware(request: Any) -> Any:
            if not request.path.startswith("/rest"):
                assert request.user.profile.points <= COINS
                _loaded[-1].wait(100)
            return get_response(request)

    return middleware


class WaitForAll(BasePermission):  # type: ignore[misc]  # REST framework has no types
    def has_permission(self, request: Any, view: Any) -> bool:
        assert request.user.profile.points <= COINS
        _loaded[-1].wait(100)
        return bool(request.user.is_authenticated)


def take_coin(user: Any) -> int:
    """The status of the answer."""
    if user.balance < 1:
        return 409
    user.balance -= 1
    user.save()
    user.profile.points -= 1
    user.profile.save()
    return 200


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=take_coin(request.user))


class InClass(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


async def in_task(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=await sync_to_async(take_coin)(request.user))


async def in_task_by_auser(request: Any) -> HttpResponse:
    return HttpResponse(status=await sync_to_async(take_coin)(await request.auser()))


@distributed_lock("user_<user.pk>")
def helper(request: HttpRequest) -> HttpResponse:
    return plain(request)


def by_helper(request: HttpRequest) -> HttpResponse:
    return helper(request)


def rest(authentication: type) -> Any:
    class Spend(APIView):  # type: ignore[misc]  # REST framework has no types
        authentication_classes = [authentication]
        permission_classes = [WaitForAll]

        def post(self, request: Any) -> Response:
            return Response(status=take_coin(request.user))

    return Spend


class Bearer(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> Customer:
        customer = Customer.objects.get(auth_token__key=token)
        _loaded[-1].wait(100)
        return customer


def ninja() -> Any:
    api = NinjaAPI(auth=Bearer())

    @api.post("spend")
    @distributed_lock(lambda request: f"user_{request.auth.pk}")
    def spend(request: Any) -> Any:
        return api.create_response(request, None, status=take_coin(request.auth))

    return api.urls


def locked(**words: Any) -> Any:
    return distributed_lock("user_<user.pk>", **words)


@dataclass
class Arrangement:
    view: Any
    atomic: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    route: str = "spend"


BASIC = {"HTTP_AUTHORIZATION": f"Basic {base64.b64encode(b'alice:secret').decode()}"}
REMOTE = {"REMOTE_USER": "alice"}
RULE = {
    "DISTLOCK_RULES": [{"route": "spend", "lock": "user_<user.pk>"}],
    "MIDDLEWARE": ["django_distlock.middleware.DistlockMiddleware"],
}
BY_SERVER = {
    "MIDDLEWARE": ["django.contrib.auth.middleware.RemoteUserMiddleware"],
    "AUTHENTICATION_BACKENDS": ["django.contrib.auth.backends.RemoteUserBackend"],
}

ARRANGEMENTS: dict[str, Arrangement] = {
    "plain": Arrangement(locked()(plain)),
    "atomic": Arrangement(locked()(plain), atomic=True),
    "fence": Arrangement(locked(fence=True)(plain)),
    "batch": Arrangement(locked(fence=True, batch=32)(plain)),
    "batch, atomic": Arrangement(locked(batch=32)(plain), atomic=True),
    "login_required": Arrangement(login_required(locked()(plain))),
    "class": Arrangement(locked()(InClass).as_view()),
    "helper": Arrangement(by_helper),
    "rule": Arrangement(plain, settings=RULE),
    "rule, atomic": Arrangement(plain, atomic=True, settings=RULE),
    "remote user": Arrangement(locked()(plain), headers=REMOTE, settings=BY_SERVER),
    "rest, session": Arrangement(locked()(rest(SessionAuthentication)).as_view(), route="rest"),
    "rest, token": Arrangement(locked()(rest(TokenAuthentication)).as_view(), route="rest"),
    "rest, token, atomic": Arrangement(
        locked()(rest(TokenAuthentication)).as_view(), route="rest", atomic=True
    ),
    "rest, token, fence": Arrangement(locked(fence=True)(rest(TokenAuthentication)).as_view(), route="rest"),
    "rest, basic": Arrangement(locked()(rest(BasicAuthentication)).as_view(), route="rest", headers=BASIC),
    "rest, remote user": Arrangement(
        locked()(rest(RemoteUserAuthentication)).as_view(), route="rest", headers=REMOTE, settings=BY_SERVER
    ),
    "ninja, bearer token": Arrangement(ninja(), route="rest/"),
    "async": Arrangement(locked()(in_task)),
    "async, auser": Arrangement(locked()(in_task_by_auser)),
}


def spend(name: str) -> dict[str, Any]:
    """How many requests were answered with each status, and what is left."""
    one = ARRANGEMENTS[name]

    class Urls:
        urlpatterns = [path(one.route, one.view, name="spend")]

    Customer.objects.all().delete()
    alice = Customer.objects.create_user("alice", password="secret", balance=COINS)
    Profile.objects.create(customer=alice, points=COINS)
    first = Client()
    first.force_login(alice, settings.AUTHENTICATION_BACKENDS[0])
    headers = dict(one.headers)
    if "token" in name:
        kind = "Bearer" if "bearer" in name else "Token"
        headers["HTTP_AUTHORIZATION"] = f"{kind} {Token.objects.create(user=alice).key}"
    connections.settings["default"]["ATOMIC_REQUESTS"] = one.atomic
    changed = dict(one.settings)
    changed["MIDDLEWARE"] = [*settings.MIDDLEWARE, *changed.get("MIDDLEWARE", []), MIDDLEWARE]
    with override_settings(ROOT_URLCONF=Urls, **changed):
        ask = ask_by_tasks if name.startswith("async") else ask_by_threads
        statuses = ask(first, f"/{one.route}spend" if "/" in one.route else f"/{one.route}", headers)
    left = Customer.objects.get().balance, Profile.objects.get().points
    return {"name": name, "spent": statuses.get(200, 0), "refused": statuses.get(409, 0), "left": left}


def ask_by_threads(first: Client, url: str, headers: dict[str, str]) -> Counter[int]:
    statuses: Counter[int] = Counter()
    authorized = "HTTP_AUTHORIZATION" in headers

    def ask() -> None:
        client = Client()
        if not authorized:
            client.cookies = first.cookies
        try:
            statuses[client.post(url, **headers).status_code] += 1  # type: ignore[arg-type]
        except Exception:
            traceback.print_exc()
        finally:
            connections.close_all()

    _loaded.append(threading.Barrier(BUYERS))
    threads = [threading.Thread(target=ask) for _ in range(BUYERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def ask_by_tasks(first: Client, url: str, headers: dict[str, str]) -> Counter[int]:
    async def ask() -> int:
        client = AsyncClient(raise_request_exception=False)
        client.cookies = first.cookies
        return int((await client.post(url)).status_code)

    async def ask_together() -> list[int]:
        _tasks.append(asyncio.Barrier(BUYERS))
        statuses = await asyncio.gather(*(ask() for _ in range(BUYERS)))
        await sync_to_async(connections.close_all)()
        return statuses

    return Counter(asyncio.run(ask_together()))
