"""Compares the user of a request with the user's row under the lock.

A lock's name, a decorator or a middleware may load ``request.user`` before the lock. While the request waits,
another one may change the user's row. So the guard reads the row again once it has the lock, and sets the
changed fields in the objects that the request has. One query reads the row, and those related rows that the
user has cached, such as a profile.

An instance of a watched model keeps a copy of the values that it was loaded with, or last saved. Under the
lock three values of each field are compared: the copy, the instance's own, and the row's. They show whether
another request has written the field, or this request has set it without saving it.
"""

from __future__ import annotations

import copy
import datetime
import functools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any
from weakref import WeakSet

from django.apps import apps
from django.conf import settings
from django.contrib import auth
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import DateField, Field, FileField, Model, TimeField
from django.db.models.fields.files import FieldFile
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from distlock.grants.grant import Grant
from django_distlock import private, private_of_others
from django_distlock.fresh.stale_writes import note_read

#: The attribute of an instance's ``_state`` with the copy of its values.
_LOADED = "distlock_loaded"

#: The attribute of ``_state`` with the values that this request set before the lock, without saving them, in
#: fields that another request has written since.
_CONFLICTS = "distlock_conflicts"

_WATCHED = "_distlock_watched"

_MISSING = object()

_IMMUTABLE = frozenset(
    {
        type(None),
        bool,
        bytes,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        Decimal,
        float,
        int,
        str,
        uuid.UUID,
    }
)

_mutex = threading.Lock()


def watch(model: type[Model]) -> None:
    """Let instances of *model* and of its subclasses keep a copy of the values that they are loaded with."""
    with _mutex:
        if not hasattr(model, _WATCHED):
            setattr(model, _WATCHED, True)
            _wrap(model)


def _wrap(model: Any) -> None:
    from_db, refresh = model.from_db.__func__, model.refresh_from_db

    @functools.wraps(from_db)
    def from_db_and_copy(cls: type[Model], *args: Any, **kwargs: Any) -> Model:
        instance: Model = from_db(cls, *args, **kwargs)
        _copy_all(instance)
        return instance

    @functools.wraps(refresh)
    def refresh_and_copy(self: Model, *args: Any, **kwargs: Any) -> None:
        refresh(self, *args, **kwargs)
        _copy_values(self, args[1] if len(args) > 1 else kwargs.get("fields"))

    model.from_db = classmethod(from_db_and_copy)
    model.refresh_from_db = refresh_and_copy
    private.save_through(model, _saving)


def _saving(save: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save)
    def save_and_copy(self: Model, *args: Any, **kwargs: Any) -> None:
        _refuse_overwriting(self, kwargs.get("update_fields"))
        save(self, *args, **kwargs)
        _copy_values(self, kwargs.get("update_fields"))

    return save_and_copy


def prepare_changes(instance: Model, row: Model) -> Callable[[], None] | None:
    """Return a function that sets the fields of *instance* that another request wrote; None: there are none.

    A field that this request has set and not saved keeps its value. If another request has written it, too,
    saving it under the lock raises `ConfigurationError`. All fields that need no change, and have no such
    conflict, count as read just now.

    Args:
        instance: An instance that was loaded before the lock.
        row: The instance of the same row that was read under the lock.
    """
    mine, theirs = vars(instance), vars(row)
    loaded: dict[str, Any] = getattr(instance._state, _LOADED, {})
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    written: list[Field[Any, Any]] = []
    for field in private.concrete_fields(instance):
        name = field.attname
        if name not in mine or name not in theirs:
            continue
        if _is_same(field, mine[name], theirs[name]):
            conflicts.pop(name, None)
            continue
        before = loaded.get(name, _MISSING)
        if hasattr(mine[name], "resolve_expression") and before is not mine[name]:
            # The value is an expression: the database computes it from the row, at the save.
            continue
        if before is _MISSING or _is_same(field, before, mine[name]):
            written.append(field)
        elif not (_is_same(field, before, theirs[name]) or isinstance(field, DateField | TimeField)):
            # A date or time, such as that of the last visit, does not depend on the old value.
            conflicts[name] = _copied(field, mine[name])
    if conflicts:
        setattr(instance._state, _CONFLICTS, conflicts)
    watch(type(instance))
    if not hasattr(row._state, _LOADED):
        _copy_all(row)
    setattr(instance._state, _LOADED, loaded | getattr(row._state, _LOADED))
    stale = {*conflicts, *(field.attname for field in written)}
    note_read(instance, [name for name in getattr(row._state, _LOADED) if name in mine and name not in stale])
    return functools.partial(_set, instance, row, written) if written else None


def _set(instance: Model, row: Model, fields: Iterable[Field[Any, Any]]) -> None:
    for field in fields:
        mine, theirs = vars(instance)[field.attname], vars(row)[field.attname]
        if isinstance(field, FileField):
            # setattr() would open an image to compute the columns of its size, which the row has already.
            vars(instance)[field.attname] = theirs.name if isinstance(theirs, FieldFile) else theirs
        elif not _set_content(mine, theirs):
            setattr(instance, field.attname, getattr(row, field.attname))
    note_read(instance, [field.attname for field in fields])


def _set_content(mine: Any, theirs: Any) -> bool:
    """Copy the content of *theirs* into the list or dict *mine*. Return False if their types don't allow it.

    Nested lists and dicts also stay the same objects, if they are in the same place in both.
    """
    if type(mine) is not type(theirs) or not isinstance(mine, dict | list):
        return False
    if isinstance(mine, dict):
        items = {key: _merged(mine.get(key), value) for key, value in theirs.items()}
        mine.clear()
        mine.update(items)
    else:
        before = [*mine, *[None] * len(theirs)]
        mine[:] = [_merged(one, value) for one, value in zip(before, theirs, strict=False)]
    return True


def _merged(mine: Any, theirs: Any) -> Any:
    return mine if _set_content(mine, theirs) else theirs


def _copy_all(instance: Model) -> None:
    values = vars(instance).copy()
    state = values.pop("_state")
    if not _IMMUTABLE.issuperset(map(type, values.values())):
        fields = private.concrete_fields(instance)
        copies = {one.attname: _copied(one, values[one.attname]) for one in fields if one.attname in values}
        values = {name: value for name, value in copies.items() if value is not _MISSING}
    setattr(state, _LOADED, values)


def _copy_values(instance: Model, names: Collection[str] | None) -> None:
    """Copy the values of the fields *names* of *instance*; None: of all fields."""
    values = vars(instance)
    loaded: dict[str, Any] = getattr(instance._state, _LOADED, {})
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    for field in private.concrete_fields(instance):
        name = field.attname
        if name in values and (names is None or name in names or field.name in names):
            conflicts.pop(name, None)
            loaded[name] = _copied(field, values[name])
            if loaded[name] is _MISSING:
                del loaded[name]
    setattr(instance._state, _LOADED, loaded)


def _copied(field: Field[Any, Any], value: Any) -> Any:
    """Return a copy of *value*, or `_MISSING` if a copy can't be made or compared."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, FieldFile):
        return value.name
    if isinstance(value, memoryview):
        return bytes(value)
    if hasattr(value, "resolve_expression"):
        return value
    try:
        copied = copy.deepcopy(value)
    except Exception:
        return _MISSING
    return copied if _is_same(field, copied, value) else _MISSING


def _is_same(field: Field[Any, Any], one: Any, other: Any) -> bool:
    """Return whether the database stores *one* and *other* as the same value."""
    try:
        return one is other or bool(one == other) or field.get_prep_value(one) == field.get_prep_value(other)
    except Exception:
        # A field class of the site may raise for a value that was never validated.
        return False


def _refuse_overwriting(instance: Model, names: Collection[str] | None) -> None:
    """Raise `ConfigurationError` if saving the fields *names* overwrites what another request wrote."""
    conflicts: dict[str, Any] = getattr(instance._state, _CONFLICTS, {})
    if not conflicts or not current_grants():
        return
    for field in private.concrete_fields(instance):
        name = field.attname
        if name not in conflicts or not (names is None or name in names or field.name in names):
            continue
        if _is_same(field, conflicts[name], vars(instance).get(name)):
            model = type(instance).__name__
            raise ConfigurationError(
                f"{model}.{field.name} was set before the lock and not saved, and another request has "
                "written that field while this one waited: to save it now would overwrite that. Set it "
                f"under the lock, or save it where it is set: save(update_fields=[{field.name!r}])."
            )


#: The attribute of a request with the grants under which its user was compared.
_COMPARED = "_distlock_compared"


def watch_users() -> None:
    """Watch the user model, and the models of related rows that a user may cache, such as a profile."""
    if not apps.is_installed("django.contrib.auth") or not getattr(settings, "DISTLOCK_REFRESH_USER", True):
        return
    model = auth.get_user_model()
    watch(model)
    for relation in model._meta.get_fields():
        related = relation.related_model
        if (relation.one_to_one or relation.many_to_one) and isinstance(related, type):
            watch(related)


def loaded_users(request: Any, django_request: HttpRequest) -> list[Model]:
    """Return the users that *request* has loaded before the innermost lock of the running code. Loads none.

    A second call for the same request and lock returns [].

    Args:
        request: *django_request*, or REST framework's wrapper around it.
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
        # request.user will be loaded from the session's user, or wraps that user. If it is another user, as
        # under impersonation, the view does not see the session's user.
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
    """Return the row of *instance*, read in one query with the rows of *relations* in the same database.

    None: the row was deleted.
    """
    joined = [one.name for one in relations if router.db_for_write(one.related_model) == alias]
    query = (
        type(instance)._base_manager.db_manager(alias, hints={"instance": instance}).filter(pk=instance.pk)
    )
    if deferred := instance.get_deferred_fields():
        fields = private.concrete_fields(instance)
        query = query.only(*joined, *(one.attname for one in fields if one.attname not in deferred))
    return next(iter(query.select_related(*joined) if joined else query), None)


def _compare(request: Any, user: Model, row: Model) -> None:
    set_changes = prepare_changes(user, row)
    if set_changes is not None:
        valid = _is_of_session(request, user) and _may_log_in(request, user)
        set_changes()
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
        if (set_changes := prepare_changes(mine, theirs)) is not None:
            set_changes()
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
    if request is django_request:
        return not of_session
    from rest_framework.authentication import SessionAuthentication

    return isinstance(request.successful_authenticator, SessionAuthentication)


def _session_of(request: HttpRequest) -> Mapping[str, Any]:
    """Return the data that the session of *request* has loaded, without marking it as accessed."""
    session = private.loaded_object(vars(request).get("session"))
    return {} if session is None else private.session_content(session) or {}


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
