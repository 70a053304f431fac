"""What distlock leans on that Django does not promise to keep.

Each such name stands here only, and those of other libraries stand in `private_of_others`.
tests/django_distlock/test_private*.py fail where one is gone, and say what to look at.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from django.core.handlers.wsgi import LimitedStream, WSGIRequest
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model
from django.http import HttpRequest
from django.urls import ResolverMatch, URLPattern
from django.utils.decorators import method_decorator
from django.utils.functional import LazyObject, empty
from django.views.decorators.http import require_http_methods

Function = Callable[..., Any]

# Django: views ---------------------------------------------------------------------------------------------


def opted_out(view: object) -> set[str]:
    """Return the database aliases that ``@transaction.non_atomic_requests`` has named for *view*."""
    aliases: set[str] = getattr(view, "_non_atomic_requests", set())
    return aliases


def opt_out(view: Any, aliases: set[str]) -> None:
    """Let `opted_out` give *aliases* for *view*: Django opens no transaction around it where one is in it."""
    view._non_atomic_requests = aliases


def required_methods(wrapper: object) -> frozenset[str] | None:
    """Return the methods that *wrapper* lets through, if ``@require_http_methods`` has made it; else None."""
    if getattr(wrapper, "__code__", None) not in _requiring:
        return None
    return frozenset(_enclosed(wrapper)["request_method_list"])


def is_dummy(function: Function) -> bool:
    """Return whether *function* is what ``@method_decorator`` tries its decorators on, once a method."""
    return function.__module__ == "django.utils.decorators"


def is_bound_by_method_decorator(function: object) -> bool:
    """Return whether *function* is what ``@method_decorator`` makes of a method for each call."""
    return isinstance(function, functools.partial) and inspect.ismethod(function.func)


async def _async_view(request: HttpRequest) -> None: ...


_requiring = {require_http_methods([])(function).__code__ for function in (lambda request: None, _async_view)}
_atomic = transaction.atomic(lambda: None)
_method = method_decorator(lambda function: function)(lambda self: None)


def decorators_of(wrapper: object) -> list[Any]:
    """Return the decorators that *wrapper* applies to a function, the outermost first; none if unknown.

    It is where ``@method_decorator`` has made it, or a context manager as ``transaction.atomic(…)`` is.
    """
    code = getattr(wrapper, "__code__", None)
    if code is _atomic.__code__:
        # Every decorator that is a context manager has this code.
        return [_enclosed(wrapper)["self"]]
    if code is _method.__code__:
        return list(reversed(_enclosed(wrapper)["decorators"]))
    return []


def _enclosed(function: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(function).nonlocals


def resolve_through(pattern: URLPattern, change: Callable[[URLPattern, ResolverMatch], None]) -> None:
    """Let *change* alter each match of *pattern* in place. Once: a second call is ignored."""
    resolve = pattern.resolve
    if hasattr(resolve, "_distlock_changes"):
        return

    def resolve_and_change(path: str) -> ResolverMatch | None:
        match = resolve(path)
        if match is not None:
            change(pattern, match)
        return match

    resolve_and_change._distlock_changes = True  # type: ignore[attr-defined]
    pattern.resolve = resolve_and_change  # type: ignore[method-assign]


def leave_unlogged(response: Any) -> None:
    """Let Django write no log line about *response*, whatever its status is."""
    response._has_been_logged = True


def post_render_callbacks(response: object) -> list[Function]:
    """The functions of the site that run when *response* is rendered; those of Django's own are left out."""
    if getattr(response, "is_rendered", True):
        return []
    callbacks: list[Function] = getattr(response, "_post_render_callbacks", [])
    # Django turns middlewares into decorators by them, such as cache_page and csrf_protect.
    return [one for one in callbacks if not str(getattr(one, "__module__", "")).startswith("django.")]


def makes_content_later(response: object) -> bool:
    """Return whether site code makes *response*'s content while it is sent. False for a file."""
    return getattr(response, "streaming", False) and getattr(response, "file_to_stream", None) is None


def unread_stream(request: HttpRequest) -> Any:
    """Return the stream of *request*'s body. None: it was begun to be read, by ASGI's handler or the site."""
    if not isinstance(request, WSGIRequest) or hasattr(request, "_body"):
        return None
    stream: Any = request._stream
    begun = request._read_started  # type: ignore[attr-defined]
    # One that was put back has been read.
    return stream if type(stream) is LimitedStream and not begun else None


class _PutBack(LimitedStream):
    """A body that was read, and is there to be read again."""


def put_stream(request: Any, stream: Any, length: int) -> None:
    """Let *request* read *length* bytes of body from *stream*, as if nobody had begun to.

    The view may read it from ``wsgi.input`` as well, where Django has it from.
    """
    request.environ["wsgi.input"] = stream
    request._stream = _PutBack(stream, length)


# Django: sessions ------------------------------------------------------------------------------------------


def session_content(session: Any) -> dict[str, Any] | None:
    """Return the very dict that *session* has loaded; None: it was not loaded yet."""
    content: dict[str, Any] | None = vars(session).get("_session_cache")
    return content


def put_session_content(session: Any, content: dict[str, Any]) -> None:
    """Let *session* have *content*, as if it had loaded it."""
    session._session_cache = content


def forget_session_key(session: Any) -> None:
    """Let *session* be new, as Django does where what its key leads to is gone."""
    session._session_key = None


def session_update_error() -> type[Exception]:
    """Return the exception that ``save()`` of a deleted session raises. No public module has it."""
    from django.contrib.sessions.backends.base import UpdateError

    return UpdateError


def stamp_sessions(cls: Any) -> None:
    """Let sessions of *cls* keep a copy of what they load, for `session_as_loaded`. Once for each class."""
    if hasattr(cls.__dict__.get("load"), "_distlock_stamps"):
        return
    load, aload = cls.load, cls.aload

    @functools.wraps(load)
    def load_and_stamp(self: Any) -> dict[str, Any]:
        content: dict[str, Any] = load(self)
        self._distlock_loaded = copy.deepcopy(content)
        return content

    @functools.wraps(aload)
    async def aload_and_stamp(self: Any) -> dict[str, Any]:
        content: dict[str, Any] = await aload(self)
        self._distlock_loaded = copy.deepcopy(content)
        return content

    load_and_stamp._distlock_stamps = True  # type: ignore[attr-defined]
    cls.load, cls.aload = load_and_stamp, aload_and_stamp


def session_as_loaded(session: Any) -> dict[str, Any] | None:
    """Return the data that *session* had loaded; None if `stamp_sessions` came later."""
    loaded: dict[str, Any] | None = vars(session).get("_distlock_loaded")
    return loaded


# Django: transactions --------------------------------------------------------------------------------------


def own_blocks(connection: Any) -> list[Any]:
    """The open ``atomic`` blocks of *connection*, the outermost first, without those of a `TestCase`."""
    return [block for block in connection.atomic_blocks if not block._from_testcase]


def end_blocks(connection: Any, error: BaseException) -> bool:
    """End the `own_blocks` of *connection* as if *error* had left them. Gives whether there was one."""
    blocks, found = connection.atomic_blocks, False
    while blocks and not blocks[-1]._from_testcase:
        found = True
        blocks[-1].__exit__(type(error), error, None)
    return found


def mark_blocks(connection: Any) -> bool:
    """Let the `own_blocks` of *connection* be rolled back when they end, and nothing be written before.

    Gives whether there was one that would have been committed.
    """
    inner = len(own_blocks(connection)) - 1
    if inner < 0 or not connection.commit_on_exit:
        return False
    # One that has no savepoint passes the mark on to the block around it: the outermost one is rolled back.
    savepoints = connection.savepoint_ids
    savepoints[len(savepoints) - inner :] = [None] * inner
    connection.needs_rollback = True
    return True


def is_marked(connection: Any) -> bool:
    """Return whether the innermost block of *connection* will be rolled back."""
    return bool(connection.needs_rollback)


def mark(connection: Any) -> None:
    """Let the innermost block of *connection* be rolled back, also where none is open any more."""
    connection.needs_rollback = True


def set_rollback_by(connection: Any, set_rollback: Callable[[bool], None]) -> Callable[[], None]:
    """Let *set_rollback* stand in the place of that of *connection*. Gives what undoes it."""
    before = vars(connection).get("set_rollback")
    connection.set_rollback = set_rollback

    def undo() -> None:
        if before is None:
            del connection.set_rollback
        else:
            connection.set_rollback = before

    return undo


def was_closed_inside(connection: Any) -> bool:
    """Return whether *connection* was closed inside of its ``atomic`` block."""
    return bool(connection.closed_in_transaction)


def has_commit_hooks(connection: Any) -> bool:
    """Return whether functions wait for the COMMIT of *connection*."""
    return bool(connection.run_on_commit)


def put_commit_hooks(connection: Any, hooks: list[Any]) -> list[Any]:
    """Let *hooks* wait for the COMMIT of *connection*. Gives those that have waited before."""
    before: list[Any] = connection.run_on_commit
    connection.run_on_commit = hooks
    return before


def commit_hook(function: Callable[[], object]) -> object:
    """*function*, as `put_commit_hooks` takes it."""
    return set[str](), function, False


def run_commit_hooks(connection: Any, hooks: list[Any]) -> None:
    """Run *hooks*, which a transaction of another connection has left, as after a COMMIT of *connection*."""
    put_commit_hooks(connection, hooks)
    connection.run_and_clear_commit_hooks()


def end_blocks_inside(connection: Any, block: object, error: BaseException) -> bool:
    """End those that are open inside of *block*, as if *error* had left them. Gives whether there was one."""
    found = False
    while connection.atomic_blocks and connection.atomic_blocks[-1] is not block:
        found = True
        connection.atomic_blocks[-1].__exit__(type(error), error, None)
    return found


def wrappers_of(connection: Any) -> list[Any]:
    """Return the wrappers around the statements of *connection*: a list to be changed in place."""
    wrappers: list[Any] = connection.execute_wrappers
    return wrappers


def commit_hook_names(connection: Any) -> list[str]:
    """Return the names of the functions that wait for the COMMIT of *connection*."""
    functions = [function for _, function, *_ in connection.run_on_commit]
    return [f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', one)}" for one in functions]


def is_outermost(connection: Any) -> bool:
    """Return whether the innermost block of *connection* is its only one, which a COMMIT ends."""
    return len(connection.atomic_blocks) <= 1


def send_commit_by(connection: Any, send: Callable[[Function], None]) -> Callable[[], None]:
    """Let *send*, which gets what sends COMMIT on *connection*, stand in its place. Gives what undoes it."""
    commit = connection._commit
    before = vars(connection).get("_commit")
    connection._commit = lambda: send(commit)

    def undo() -> None:
        if before is None:
            del connection._commit
        else:
            connection._commit = before

    return undo


def begin_and_end_by(connection: Any, set_autocommit: Callable[..., None]) -> Callable[[], None]:
    """Let *set_autocommit* stand in the place of that of *connection*. Gives what undoes it.

    Every outermost transaction begins and ends there, and no signal tells of it.
    """
    before = vars(connection).get("set_autocommit")
    connection.set_autocommit = set_autocommit

    def undo() -> None:
        if before is None:
            del connection.set_autocommit
        else:
            # Other code around us has replaced it, too.
            connection.set_autocommit = before

    return undo


def was_raised_by_commit_hook(error: BaseException) -> bool:
    """Return whether *error* came out of an ``on_commit`` hook."""
    hooks = BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is hooks:
            return True
        traceback = traceback.tb_next
    return False


# Django: models and users ----------------------------------------------------------------------------------


def loaded_object(value: object) -> object:
    """Return what the lazy object *value* has loaded, *value* itself if it is none; None: nothing yet."""
    while isinstance(value, LazyObject):
        value = vars(value)["_wrapped"]
    return None if value is empty else value


def loaded_by_session(request: HttpRequest) -> object:
    """Return what ``request.user`` has loaded for the session, if it has; somebody may have replaced it."""
    return loaded_object(vars(request).get("_cached_user"))


def loaded_by_auser(request: HttpRequest) -> object:
    """Return what ``await request.auser()`` has loaded, if it has."""
    return loaded_object(vars(request).get("_acached_user"))


def loaded_rest_user(request: Any) -> object:
    """Return the user of REST framework's *request*, if it has authenticated one."""
    return loaded_object(vars(request).get("_user"))


def concrete_fields(instance: Model | type[Model]) -> Sequence[Field[Any, Any]]:
    """Return the fields of *instance* that are columns, those of its parents among them."""
    return instance._meta.concrete_fields


def cached_relations(instance: Model) -> list[Any]:
    """Return the relations whose one related row *instance* has cached, as `cached_row` gives it."""
    if not instance._state.fields_cache:
        return []
    relations: Sequence[Any] = instance._meta.get_fields()
    return [
        relation
        for relation in relations
        # A GenericForeignKey is neither a column, nor the other side of one.
        if ((relation.concrete and relation.is_relation) or (relation.auto_created and relation.one_to_one))
        and has_cached(instance, relation)
    ]


def cached_row(instance: Model, relation: Any) -> Model | None:
    """Return the row that *instance* has cached for *relation*; None: there is none."""
    row: Model | None = relation.get_cached_value(instance, default=None)
    return row


def has_cached(instance: Model, relation: Any) -> bool:
    """Return whether *instance* knows what `cached_row` gives for *relation*."""
    return bool(relation.is_cached(instance))


def forget_row(instance: Model, relation: Any) -> None:
    """Let *instance* load the row of *relation* again, where it is used next."""
    relation.delete_cached_value(instance)


def save_through(model: Any, wrap: Callable[[Function], Function]) -> None:
    """Let *wrap* wrap the method by which each instance of *model* is saved, in any way."""
    model.save_base = wrap(model.save_base)


def value_fields(model: Model | type[Model]) -> list[Field[Any, Any]]:
    """Return the fields of *model* that are columns and no part of a key."""
    key = model._meta.pk_fields
    return [field for field in model._meta.concrete_fields if not (field.primary_key or field in key)]


def how_made() -> tuple[bool, Model | None]:
    """Return whether the instance whose ``__init__()`` runs is loaded, and which one is refreshed by it."""
    is_loaded = False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            break
        if frame.f_code is _REFRESH:
            return is_loaded, frame.f_locals["self"]
        # By its name: a model may have one of its own.
        is_loaded = is_loaded or frame.f_code.co_name == "from_db"
        frame = frame.f_back
    return is_loaded, None


_REFRESH = Model.refresh_from_db.__code__
#: How many frames there are at most from a signal in ``__init__()`` to ``refresh_from_db()``.
_DEPTH = 16
