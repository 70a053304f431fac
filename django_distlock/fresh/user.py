"""Compares the user of a request with the user's row under the lock.

A lock's name, a decorator or a middleware may load ``request.user`` before the lock. While the request waits,
another one may change the user's row. So the guard reads the row again once it has the lock, and sets the
changed fields in the objects that the request has. One query reads the row, and those related rows that the
user has cached, such as a profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakSet

from django.apps import apps
from django.conf import settings
from django.contrib import auth
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import Model
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from distlock.grants.current import current_grants
from distlock.grants.grant import Grant
from django_distlock import private, private_of_others
from django_distlock.fresh import rows

#: The attribute of a request with the grants under which its user was compared.
_COMPARED = "_distlock_compared"


def watch_users() -> None:
    """Watch the user model, and the models of related rows that a user may cache, such as a profile."""
    if not apps.is_installed("django.contrib.auth") or not getattr(settings, "DISTLOCK_REFRESH_USER", True):
        return
    model = auth.get_user_model()
    rows.watch(model)
    for relation in model._meta.get_fields():
        related = relation.related_model
        if (relation.one_to_one or relation.many_to_one) and isinstance(related, type):
            rows.watch(related)


def loaded_users(request: Any, django_request: HttpRequest) -> list[Model]:
    """Return the users that *request* has loaded before the innermost lock of the running code. Loads none.

    A second call for the same request and lock returns [].

    Args:
        request: *django_request*, or that of REST framework around it.
        django_request: Django's request.
    """
    values = vars(django_request)
    of_session = private.loaded_by_session(django_request)
    if request is django_request and of_session is None and "user" not in values and "auth" not in values:
        return []
    current = private.loaded_object(values.get("user"))
    found = [current, private.loaded_by_auser(django_request)]
    if request is not django_request:
        found.append(private.loaded_rest_user(request))
    elif _is_user(of_token := private.loaded_object(values.get("auth"))):
        # django-ninja sets request.auth to the user of a token, other libraries to the token itself.
        found.append(of_token)
    if of_session in found or current is None or getattr(current, "pk", None) == getattr(of_session, "pk", 0):
        # request.user is still to be loaded from the session's user, or wraps that user. If it is another
        # user, somebody impersonates that one, and the view does not see the session's user.
        found.append(of_session)
    users = {id(one): one for one in found if _is_row(one)}
    grants = current_grants() if users else ()
    if not grants or not _is_first(django_request, grants[-1].grant):
        return []
    return list(users.values())  # type: ignore[arg-type]


def compare(request: Any, users: Iterable[Model]) -> None:
    """Set the fields of *users* that have changed in their rows since *request* loaded them.

    Raises `PermissionDenied` if one of them is logged in by the session of *request*, and may no longer be.
    """
    read: list[Model] = []
    for user in users:
        row = next((one for one in read if _is_row_of(one, user)), None)
        if row is None:
            alias = router.db_for_write(type(user), instance=user)
            row = _read(user, alias, private.cached_relations(user))
        if row is None:
            if _is_of_session(request, user):
                raise PermissionDenied("Your account was deleted while this request waited.")
            continue
        read.append(row)
        _compare(request, user, row)


def _is_user(value: object) -> bool:
    if not isinstance(value, Model) or not apps.is_installed("django.contrib.auth"):
        return False
    return isinstance(value, auth.get_user_model())


def _is_row(value: object) -> bool:
    return isinstance(value, Model) and not value._state.adding and value.pk is not None


def _is_row_of(row: Model, user: Model) -> bool:
    """Return whether *row* is the row of *user*, with all that *user* has loaded."""
    return (
        type(row) is type(user)
        and row.pk == user.pk
        and not user.get_deferred_fields() ^ row.get_deferred_fields()
        and not private.cached_relations(user)
    )


def _is_first(request: HttpRequest, grant: Grant) -> bool:
    compared: WeakSet[Grant] = vars(request).setdefault(_COMPARED, WeakSet())
    if grant in compared:
        return False
    compared.add(grant)
    return True


def _read(instance: Model, alias: str, relations: Iterable[Any]) -> Model | None:
    """Read the row of *instance*, and in the same query the rows of *relations* in the same database."""
    joined = [one.name for one in relations if router.db_for_write(one.related_model) == alias]
    query = (
        type(instance)._base_manager.db_manager(alias, hints={"instance": instance}).filter(pk=instance.pk)
    )
    if deferred := instance.get_deferred_fields():
        fields = private.concrete_fields(instance)
        query = query.only(*joined, *(one.attname for one in fields if one.attname not in deferred))
    return next(iter(query.select_related(*joined) if joined else query), None)


def _compare(request: Any, user: Model, row: Model) -> None:
    update = rows.update(user, row)
    if update is not None:
        valid = _is_of_session(request, user) and _may_log_in(request, user)
        update()
        if valid and not _may_log_in(request, user):
            raise PermissionDenied("Your account was changed while this request waited: log in again.")
    for relation in private.cached_relations(user):
        _compare_related(user, row, relation)


def _compare_related(user: Model, row: Model, relation: Any) -> None:
    mine = private.cached_row(user, relation)
    if mine is not None and mine._state.adding:
        return
    theirs = private.cached_row(row, relation)
    if mine is not None and not private.has_cached(row, relation):
        theirs = _read(mine, router.db_for_write(type(mine), instance=mine), ())
    if mine is not None and theirs is not None and mine.pk == theirs.pk:
        if (update := rows.update(mine, theirs)) is not None:
            update()
    elif relation.auto_created and mine is not theirs:
        # The related row was deleted, or replaced by another one.
        private.forget_row(user, relation)


def _is_of_session(request: Any, user: Model) -> bool:
    """Return whether *user* comes from the session of *request*, not from a token or by impersonation."""
    django_request = private_of_others.django_request(request)
    session = _session_of(django_request)
    key, backend = session.get(auth.SESSION_KEY), session.get(auth.BACKEND_SESSION_KEY)
    if key is None or backend not in settings.AUTHENTICATION_BACKENDS or not _is_user(user):
        return False  # Django loads no user from such a session.
    if key != user._meta.pk.value_to_string(user):
        return False
    loaded = private.loaded_by_session(django_request), private.loaded_by_auser(django_request)
    of_session = [one for one in loaded if _is_row(one)]
    if any(one is user for one in of_session):
        return True
    return not of_session if request is django_request else _is_of_session_in_rest(request)


def _session_of(request: HttpRequest) -> Mapping[str, Any]:
    """Return the data that the session of *request* has loaded, without marking it as accessed."""
    session = private.loaded_object(vars(request).get("session"))
    return {} if session is None else private.session_content(session) or {}


def _is_of_session_in_rest(request: Any) -> bool:
    from rest_framework.authentication import SessionAuthentication

    return isinstance(request.successful_authenticator, SessionAuthentication)


def _may_log_in(request: Any, user: Any) -> bool:
    """Return whether `auth.get_user` would accept *user* from the session of *request*."""
    session = _session_of(private_of_others.django_request(request))
    backend = auth.load_backend(session[auth.BACKEND_SESSION_KEY])
    if hasattr(backend, "user_can_authenticate"):
        active = backend.user_can_authenticate(user)
    else:
        active = getattr(user, "is_active", True)
    if not active or not hasattr(user, "get_session_auth_hash"):
        return bool(active)
    return constant_time_compare(session.get(auth.HASH_SESSION_KEY, ""), user.get_session_auth_hash())
