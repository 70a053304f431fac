from __future__ import annotations

import asyncio
import functools
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, QueryDict, UnreadablePostError
from django.test import AsyncClient, Client
from rest_framework.authentication import BasicAuthentication
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from django_distlock import distributed_lock
from django_distlock.guarding.request import DjangoRequest

Serve = Callable[..., Client]

AUTH = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]


def names() -> str:
    return " ".join(name for one in current_grants() for name in one.grant.names)


@distributed_lock("cart_<user.pk>")
def cart(request: HttpRequest) -> HttpResponse:
    return HttpResponse(names())


@pytest.fixture
def with_users(settings: Any, db: None) -> User:
    settings.MIDDLEWARE = AUTH
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    return User.objects.create_user("ann", password="secret")


def test_the_user_is_a_name(serve: Serve, with_users: User) -> None:
    client = serve(cart, "cart")
    client.force_login(with_users)
    assert client.post("/cart").content.decode() == f"cart_{with_users.pk}"


def test_nobody_is_forbidden(serve: Serve, with_users: User) -> None:
    assert serve(cart, "cart").post("/cart").status_code == 403


def test_without_the_middleware_it_says_what_to_write(serve: Serve) -> None:
    with pytest.raises(ConfigurationError, match="AuthenticationMiddleware"):
        serve(cart, "cart").post("/cart")


def test_a_function_has_no_request_even_if_a_view_calls_it(serve: Serve) -> None:
    @distributed_lock("product_<int:query.id>")
    def reduce(id: int) -> None: ...

    def view(request: HttpRequest) -> None:
        reduce(1)

    with pytest.raises(ConfigurationError, match=r"reduce was not called as a view: pass the value"):
        serve(view, "").post("/?id=1")


@pytest.mark.parametrize("form", [lambda request: request, Request])
def test_a_function_has_the_request_that_a_view_gives_it(serve: Serve, form: Callable[..., Any]) -> None:
    @distributed_lock("product_<int:query.id>")
    def reduce(request: HttpRequest) -> str:
        return names()

    client = serve(lambda request: HttpResponse(reduce(form(request))), "")
    assert client.post("/?id=1").content == b"product_1"


def sets_upload_handlers(request: HttpRequest) -> HttpResponse:
    request.upload_handlers = []
    return HttpResponse()


def test_a_form_is_parsed_before_the_view_can_set_upload_handlers(serve: Serve) -> None:
    of_json = distributed_lock("product_<int:json.id>")(sets_upload_handlers)
    assert serve(of_json, "").post("/", {"id": 1}, content_type="application/json").status_code == 200
    of_form = distributed_lock("product_<int:form.id>")(sets_upload_handlers)
    with pytest.raises(AttributeError, match="cannot set the upload handlers after"):
        serve(of_form, "").post("/", {"id": 1})


@pytest.mark.parametrize(("template", "part"), [("<int:query.id>", "GET"), ("<int:form.id>", "POST")])
def test_what_the_view_would_read_otherwise_is_a_400(serve: Serve, template: str, part: str) -> None:
    guarded = distributed_lock(template)(lambda request: HttpResponse(names()))

    @functools.wraps(guarded)
    def view(request: HttpRequest) -> Any:
        if "change" in request.GET:
            setattr(request, part, QueryDict("id=8"))
        return guarded(request)

    client, form = serve(view, ""), "application/x-www-form-urlencoded"
    assert client.post("/?id=7", "id=7", content_type=form).content == b"7"
    assert client.post("/?id=7&change", "id=7", content_type=form).status_code == 400


def test_asgi_hands_the_query_over_as_text() -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": "id=\u00e9".encode(),
        "headers": [],
    }
    request = DjangoRequest(ASGIRequest(scope, io.BytesIO()))
    assert (request.query_string, request.query("id")) == (b"id=\xc3\xa9", ["\u00e9"])


def test_a_body_that_is_gone_says_what_to_write(serve: Serve) -> None:
    def above(view: Any) -> Any:
        def wrapper(request: HttpRequest) -> Any:
            request.read(1)
            return view(request)

        return wrapper

    @above
    @distributed_lock("product_<int:json.id>")
    def view(request: HttpRequest) -> None: ...

    with pytest.raises(ConfigurationError, match=r"read request\.body there"):
        serve(view, "").post("/", {"id": 1}, content_type="application/json")


class LooksAtTheData(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        return bool(request.data["id"])


@pytest.mark.parametrize("permissions", [[], [LooksAtTheData]])
@pytest.mark.parametrize(
    ("template", "content_type"),
    [
        ("p_<int:json.id>", "application/json"),
        ("p_<int:form.id>", "application/x-www-form-urlencoded"),
        ("p_<int:form.id>", "multipart/form-data; boundary=B"),
    ],
)
def test_rest_framework_still_reads_the_body(
    serve: Serve, permissions: list[type[BasePermission]], template: str, content_type: str
) -> None:
    @distributed_lock(template)
    @api_view(["POST"])
    @authentication_classes([])
    @permission_classes(permissions)
    def view(request: Any) -> Response:
        return Response([int(request.data["id"]), names()])

    body = {
        "application/json": '{"id": 7}',
        "application/x-www-form-urlencoded": "id=7",
    }.get(content_type, '--B\r\nContent-Disposition: form-data; name="id"\r\n\r\n7\r\n--B--\r\n')
    response = serve(view, "").post(
        "/", body, content_type=content_type, headers={"accept": "application/json"}
    )
    assert json.loads(response.content) == [7, "p_7"]


@pytest.mark.usefixtures("with_users")
def test_rest_framework_says_401_where_it_knows_how_to_log_in(serve: Serve) -> None:
    @distributed_lock("cart_<user.pk>")
    @api_view(["POST"])
    @authentication_classes([BasicAuthentication])
    def view(request: Any) -> Response:
        return Response(names())

    client = serve(view, "")
    response = client.post("/", headers={"accept": "application/json"})
    assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Basic realm="api"')
    credentials = {"authorization": "Basic YW5uOnNlY3JldA=="}
    assert client.post("/", headers=credentials).json().startswith("cart_")


@pytest.mark.django_db(transaction=True)
def test_an_async_view_does_not_load_the_user_in_the_event_loop(serve: Serve, settings: Any) -> None:
    settings.MIDDLEWARE = AUTH
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"

    @distributed_lock("cart_<user.pk>_<int:json.id>")
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(names() + " " + request.body.decode())

    serve(view, "")
    user = User.objects.create_user("ann")

    async def post() -> HttpResponse:
        client = AsyncClient()
        await client.aforce_login(user)
        return await client.post("/", {"id": 7}, content_type="application/json")

    assert asyncio.run(post()).content.decode() == f'cart_{user.pk}_7 {{"id": 7}}'


class Broken:
    """A client that hangs up while it sends."""

    def read(self, size: int) -> bytes:
        raise ConnectionResetError(104, "reset by peer")

    readline = read


def test_a_body_may_be_read_where_the_server_has_put_it(serve: Serve) -> None:
    @distributed_lock("shop")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.META["wsgi.input"].read(int(request.META["CONTENT_LENGTH"])))

    assert serve(view, "").generic("POST", "/", b"a body").content == b"a body"


def test_a_body_that_was_read_by_django_is_not_read_again(serve: Serve) -> None:
    @distributed_lock("shop")
    def view(request: HttpRequest) -> HttpResponse:
        read = request.body
        return HttpResponse(b"%s, then %r" % (read, request.META["wsgi.input"].read()))

    assert serve(view, "").generic("POST", "/", b"a body").content == b"a body, then b''"


@pytest.mark.parametrize("locked", [False, True])
def test_a_client_that_hangs_up_is_djangos_error(serve: Serve, locked: bool) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.body)

    client = serve(distributed_lock("shop")(view) if locked else view, "")
    with pytest.raises(UnreadablePostError, match="reset by peer"):
        client.generic("POST", "/", b"a body", **{"wsgi.input": Broken()})


@pytest.mark.parametrize(
    ("place", "sent"), [("json", "application/json"), ("form", "application/x-www-form-urlencoded")]
)
def test_a_length_that_is_no_number_is_a_400(serve: Serve, place: str, sent: str) -> None:
    @distributed_lock(f"product_<int:{place}.id>")
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    answer = serve(view, "").post("/", b"id=1", content_type=sent, CONTENT_LENGTH="x")
    assert (answer.status_code, answer.json()["code"]) == (400, "lock_name_invalid")
