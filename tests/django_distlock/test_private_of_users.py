"""The private names of Django's users, sessions and models that `django_distlock.private` leans on."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import login
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.cache import SessionStore
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject, lazystr
from rest_framework.request import Request

from django_distlock import private
from tests.django_distlock.leaning import leaning_on

FUNCTIONAL = "LazyObject of django/utils/functional.py"
MIDDLEWARE = "django/contrib/auth/middleware.py"


def request_of(user: User) -> HttpRequest:
    """A request whose session has logged *user* in, behind the middleware of users."""
    session = SessionStore()
    request = HttpRequest()
    request.session = session
    login(request, user, "django.contrib.auth.backends.ModelBackend")
    session.save()
    again = HttpRequest()
    again.session = SessionStore(session.session_key)
    AuthenticationMiddleware(lambda request: None).process_request(again)  # type: ignore[arg-type, return-value]
    return again


def test_a_lazy_object_says_what_it_has_loaded() -> None:
    with leaning_on("_wrapped, empty", FUNCTIONAL):
        thing = object()
        lazy = SimpleLazyObject(lambda: SimpleLazyObject(lambda: thing))
        assert private.loaded_object(lazy) is None
        assert str(lazy)
        assert private.loaded_object(lazy) is thing
        assert private.loaded_object(thing) is thing
        assert private.loaded_object(None) is None
        assert private.loaded_object(lazystr("text"))


@pytest.mark.django_db(transaction=True)
def test_a_request_keeps_the_user_of_its_session() -> None:
    alice = User.objects.create_user("alice")
    request = request_of(alice)
    with leaning_on("_cached_user, _acached_user", MIDDLEWARE):
        assert private.loaded_by_session(request) is None
        assert private.loaded_by_auser(request) is None
        assert request.user == alice
        assert private.loaded_by_session(request) == alice
        assert async_to_sync(request.auser)() == alice
        assert private.loaded_by_auser(request) == alice


def test_a_request_of_rest_framework_keeps_its_user() -> None:
    request = Request(HttpRequest())
    with leaning_on("_user", "Request of rest_framework/request.py"):
        assert private.loaded_rest_user(request) is None
        user = request.user
        assert private.loaded_rest_user(request) is user


def test_a_model_says_which_rows_an_instance_has_cached() -> None:
    with leaning_on("fields_cache, is_cached, get_cached_value", "FieldCacheMixin of django/db/models"):
        permission, kind = Permission(), ContentType(model="coin")
        assert private.cached_relations(permission) == []
        permission.content_type = kind
        (relation,) = private.cached_relations(permission)
        assert relation.name == "content_type"
        assert private.has_cached(permission, relation)
        assert private.cached_row(permission, relation) is kind
        private.forget_row(permission, relation)
        assert private.cached_relations(permission) == []
        assert private.cached_row(permission, relation) is None


def test_a_model_says_what_its_columns_are() -> None:
    with leaning_on("concrete_fields", "Options of django/db/models/options.py"):
        names = {field.attname for field in private.concrete_fields(Permission())}
        assert {"id", "content_type_id", "codename"} <= names


@pytest.mark.django_db
def test_everything_is_saved_through_save_base(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []

    def wrap(save: Any) -> Any:
        def noting(self: Any, *args: Any, **kwargs: Any) -> None:
            save(self, *args, **kwargs)
            saved.append(kwargs.get("update_fields"))

        return noting

    monkeypatch.setattr(ContentType, "save_base", ContentType.save_base)
    with leaning_on("save_base", "Model of django/db/models/base.py"):
        private.save_through(ContentType, wrap)
        one = ContentType.objects.create(app_label="bank", model="coin")
        one.save(update_fields=["model"])
        assert saved == [None, {"model"}]
