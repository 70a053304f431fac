"""Views of Django and of REST framework that load their rows under the lock are not told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import authenticate, login
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views.generic import UpdateView
from rest_framework.generics import RetrieveUpdateAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView

from django_distlock import distributed_lock, locks
from tests.django_distlock.conftest import rule
from tests.django_distlock.fresh.stale_shop import Product

Told = Sequence[str]
Serve = Callable[..., Client]


@pytest.fixture
def sessions(settings: Any) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    settings.AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]


class NamesUpdate(UpdateView):
    model = Product
    fields = ("name",)
    success_url = "/"
    pk_url_kwarg = "id"


@method_decorator(distributed_lock("product_<id>"), name="dispatch")
class LockedUpdate(NamesUpdate):
    pass


class UpdateInABlock(NamesUpdate):
    def form_valid(self, form: Any) -> HttpResponse:
        with locks.lock(f"product_{self.object.pk}"):
            return super().form_valid(form)


def test_the_editing_view_is_told_only_where_its_row_is_loaded_before(
    product: Product, told: Told, serve: Serve
) -> None:
    assert serve(LockedUpdate.as_view()).post("/product/1", {"name": "pencil"}).status_code == 302
    assert not told
    assert serve(UpdateInABlock.as_view()).post("/product/1", {"name": "ink"}).status_code == 302
    (message,) = told
    assert "in UpdateInABlock.form_valid: return super().form_valid(form)" in message


class LocksLogin(LoginView):
    def form_valid(self, form: Any) -> Any:
        with locks.lock("login"):
            return super().form_valid(form)


def test_a_login_is_not_told(product: Product, told: Told, serve: Serve, sessions: None) -> None:
    User.objects.create_user("ann", password="secret")
    words = {"username": "ann", "password": "secret"}
    for view in (
        LocksLogin.as_view(next_page="/"),
        distributed_lock("login")(LoginView.as_view(next_page="/")),
    ):
        assert serve(view).post("/product/1", words).status_code == 302
    assert User.objects.get().last_login is not None
    assert not told


def logs_in(request: HttpRequest, id: int) -> HttpResponse:
    user = authenticate(request, username="ann", password="secret")
    with locks.lock("login"):
        login(request, user)  # type: ignore[arg-type]
    return HttpResponse()


def test_a_login_under_a_lock_after_the_user_was_found_is_not_told(
    product: Product, told: Told, serve: Serve, sessions: None
) -> None:
    User.objects.create_user("ann", password="secret")
    assert serve(logs_in).post("/product/1").status_code == 200
    assert not told


class Serializer(ModelSerializer):
    class Meta:
        model = Product
        fields = ("name", "stock")


class Products(RetrieveUpdateAPIView):
    queryset = Product.objects.all()
    serializer_class = Serializer
    authentication_classes = ()
    lookup_field = "id"


@method_decorator(distributed_lock("product_<id>"), name="dispatch")
class LockedProducts(Products):
    pass


@pytest.mark.parametrize("method", ["put", "patch"])
def test_an_update_of_rest_framework_is_not_told(
    product: Product, told: Told, serve: Serve, method: str
) -> None:
    client = serve(LockedProducts.as_view())
    answer = getattr(client, method)("/product/1", {"name": "pencil", "stock": 1}, "application/json")
    assert answer.status_code == 200
    assert not told


class KnowsTheProduct(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        view.product = Product.objects.get(id=view.kwargs["id"])  # type: ignore[attr-defined]
        return True


class SellsOfPermission(APIView):
    authentication_classes = ()
    permission_classes = (KnowsTheProduct,)

    @method_decorator(distributed_lock("product_<id>"))
    def post(self, request: Request, id: int) -> HttpResponse:
        product: Product = self.product  # type: ignore[attr-defined]
        product.stock -= 1
        product.save()
        return HttpResponse("sold")


def test_a_row_of_a_permission_is_told(product: Product, told: Told, serve: Serve) -> None:
    assert serve(SellsOfPermission.as_view()).post("/product/1").status_code == 200
    (message,) = told
    assert "in KnowsTheProduct.has_permission: view.product" in message


@pytest.mark.usefixtures("sessions")
def test_the_admin_under_a_rule_is_not_told(
    product: Product, told: Told, rules: Callable[..., Client], settings: Any
) -> None:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django.contrib.admin", "django.contrib.messages"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.messages.middleware.MessageMiddleware"]
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    from django.contrib.admin.models import LogEntry

    with connection.schema_editor() as editor:
        editor.create_model(LogEntry)
    site = admin.AdminSite()
    site.register(User, admin.ModelAdmin, fields=("email",))
    client = rules(
        [path("admin/", site.urls)], rule(route="admin:auth_user_change", lock="user_<int:object_id>")
    )
    user = User.objects.create_superuser("ann")
    client.force_login(user)
    try:
        assert client.post(f"/admin/auth/user/{user.pk}/change/", {"email": "a@b.org"}).status_code == 302
        assert LogEntry.objects.count() == 1
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(LogEntry)
    assert not told


@distributed_lock("user_<user.pk>")
def renames(request: Any, id: int) -> HttpResponse:
    request.user.first_name = "Ann"
    request.user.save()
    return HttpResponse("renamed")


@pytest.mark.usefixtures("sessions")
@pytest.mark.parametrize("compared", [True, False])
def test_the_user_is_told_only_where_the_guard_does_not_compare_it(
    product: Product, told: Told, serve: Serve, settings: Any, compared: bool
) -> None:
    settings.DISTLOCK_REFRESH_USER = compared
    user = User.objects.create_user("ann")
    client = serve(renames)
    client.force_login(user)
    assert client.post("/product/1").status_code == 200
    assert len(told) == (0 if compared else 1)
    assert all(message.startswith(f"User {user.pk} was loaded before the lock") for message in told)
