"""All uses of Django's private names, which any release may change.

The private names of other libraries are in `private_of_others`. If Django drops one of its names,
tests/django_distlock/test_private*.py fail and say what to look at.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """Return the databases in which Django opens no transaction around *view*.

    ``@transaction.non_atomic_requests`` or `opt_out` has named them.
    """
    aliases: set[str] = getattr(view, "_non_atomic_requests", set())
    return aliases


def opt_out(view: Any, aliases: set[str]) -> None:
    """Keep Django from opening a transaction around *view* in the databases *aliases*, and in no other."""
    view._non_atomic_requests = aliases


def required_methods(wrapper: object) -> frozenset[str] | None:
    """Return the HTTP methods that *wrapper* allows, or None if ``@require_http_methods`` did not make it."""
    if getattr(wrapper, "__code__", None) not in _requiring:
        return None
    return frozenset(_enclosed(wrapper)["request_method_list"])


def is_dummy(function: Function) -> bool:
    """Return whether *function* is the dummy to which ``@method_decorator`` first applies its decorators."""
    return function.__module__ == "django.utils.decorators"


def is_bound_by_method_decorator(function: object) -> bool:
    """Return whether *function* is the partial that ``@method_decorator`` makes for each call of a method."""
    return isinstance(function, functools.partial) and inspect.ismethod(function.func)


async def _async_view(request: HttpRequest) -> None: ...


_requiring = {require_http_methods([])(function).__code__ for function in (lambda request: None, _async_view)}
_atomic = transaction.atomic(lambda: None)
_method = method_decorator(lambda function: function)(lambda self: None)


def decorators_of(wrapper: object) -> list[Any]:
    """Return the decorators that *wrapper* applies to a function, the outermost first.

    The list is empty unless ``@method_decorator`` made *wrapper*, or a context manager that is used as a
    decorator, such as ``transaction.atomic(…)``.
    """
    code = getattr(wrapper, "__code__", None)
    if code is _atomic.__code__:
        # All context managers that are used as decorators share this code.
        return [_enclosed(wrapper)["self"]]
    if code is _method.__code__:
        return list(reversed(_enclosed(wrapper)["decorators"]))
    return []


def _enclosed(function: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(function).nonlocals


def resolve_through(pattern: URLPattern, change: Callable[[URLPattern, ResolverMatch], None]) -> None:
    """Call *change* with each match of *pattern*, to alter the match in place.

    A second call for the same pattern does nothing.
    """
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
    """Keep Django from logging the status of *response*."""
    response._has_been_logged = True


def post_render_callbacks(response: object) -> list[Function]:
    """Return the site's own functions that run when *response* is rendered."""
    if getattr(response, "is_rendered", True):
        return []
    callbacks: list[Function] = getattr(response, "_post_render_callbacks", [])
    # Leave out those of Django's middlewares that are used as decorators, such as cache_page.
    return [one for one in callbacks if not str(getattr(one, "__module__", "")).startswith("django.")]


def makes_content_later(response: object) -> bool:
    """Return whether site code makes *response*'s content while it is sent. False for a file."""
    return getattr(response, "streaming", False) and getattr(response, "file_to_stream", None) is None


def unread_stream(request: HttpRequest) -> Any:
    """Return the stream of *request*'s body; None if the ASGI handler, the site or distlock read it."""
    if not isinstance(request, WSGIRequest) or hasattr(request, "_body"):
        return None
    stream: Any = request._stream
    begun = request._read_started  # type: ignore[attr-defined]
    # distlock has read the body before if the stream is a `_PutBack`.
    return stream if type(stream) is LimitedStream and not begun else None


class _PutBack(LimitedStream):
    """The stream of a body that distlock has read before the lock. The view reads the body from it."""


def put_stream(request: Any, stream: Any, length: int) -> None:
    """Let *request* read its body, *length* bytes, from *stream*, as if reading had not begun.

    A view that reads ``wsgi.input`` itself gets *stream*, too.
    """
    request.environ["wsgi.input"] = stream
    request._stream = _PutBack(stream, length)


# Django: sessions ------------------------------------------------------------------------------------------


def session_content(session: Any) -> dict[str, Any] | None:
    """Return the dict that *session* has loaded (not a copy), or None if it has loaded nothing yet."""
    content: dict[str, Any] | None = vars(session).get("_session_cache")
    return content


def put_session_content(session: Any, content: dict[str, Any]) -> None:
    """Replace the content of *session*, as if it had loaded *content*."""
    session._session_cache = content


def forget_session_key(session: Any) -> None:
    """Make *session* a new one, as Django does if the store has no session of its key."""
    session._session_key = None


def session_update_error() -> type[Exception]:
    """Return the class of the exception that ``save()`` of a deleted session raises."""
    from django.contrib.sessions.backends.base import UpdateError

    return UpdateError


def stamp_sessions(cls: Any) -> None:
    """Let sessions of *cls* keep a copy of what they load, for `session_as_loaded`. Idempotent."""
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
    """Return the copy that *session* kept of the data it loaded, or None.

    It keeps none before it is loaded, nor if it was loaded before `stamp_sessions` was called.
    """
    loaded: dict[str, Any] | None = vars(session).get("_distlock_loaded")
    return loaded


# Django: transactions --------------------------------------------------------------------------------------


def own_blocks(connection: Any) -> list[Any]:
    """Return the open ``atomic`` blocks of *connection*, except a `TestCase`'s, the outermost first."""
    return [block for block in connection.atomic_blocks if not block._from_testcase]


def end_blocks(connection: Any, error: BaseException) -> bool:
    """Exit the `own_blocks` of *connection*, as if *error* left them. Return whether there were any."""
    blocks, found = connection.atomic_blocks, False
    while blocks and not blocks[-1]._from_testcase:
        found = True
        blocks[-1].__exit__(type(error), error, None)
    return found


def mark_blocks(connection: Any) -> bool:
    """Make the `own_blocks` of *connection* roll back when they end. Until then Django refuses queries.

    Return False, and change nothing, if there are none, or if Django would not commit them because autocommit
    was off before.
    """
    inner = len(own_blocks(connection)) - 1
    if inner < 0 or not connection.commit_on_exit:
        return False
    # A block without a savepoint passes the mark on to the next outer block, so it reaches the outermost.
    savepoints = connection.savepoint_ids
    savepoints[len(savepoints) - inner :] = [None] * inner
    connection.needs_rollback = True
    return True


def is_marked(connection: Any) -> bool:
    """Return whether the innermost block of *connection* will be rolled back."""
    return bool(connection.needs_rollback)


def mark(connection: Any) -> None:
    """Make the innermost block of *connection* roll back.

    Unlike ``set_rollback(True)``, this does not raise if no block is open.
    """
    connection.needs_rollback = True


def set_rollback_by(connection: Any, set_rollback: Callable[[bool], None]) -> Callable[[], None]:
    """Replace the ``set_rollback`` of *connection*. Return a function that restores the previous one."""
    undo = _undoing(connection, "set_rollback")
    connection.set_rollback = set_rollback
    return undo


def _undoing(connection: Any, name: str) -> Callable[[], None]:
    """Return a function that restores the present method *name* of *connection*."""
    before = vars(connection).get(name)

    def undo() -> None:
        if before is None:
            delattr(connection, name)
        else:
            # Other code had replaced the method before.
            setattr(connection, name, before)

    return undo


def was_closed_inside(connection: Any) -> bool:
    """Return whether *connection* was closed inside its ``atomic`` block."""
    return bool(connection.closed_in_transaction)


def has_commit_hooks(connection: Any) -> bool:
    """Return whether *connection* has ``on_commit`` hooks to run."""
    return bool(connection.run_on_commit)


def put_commit_hooks(connection: Any, hooks: list[Any]) -> list[Any]:
    """Replace the ``on_commit`` hooks of *connection*. Return the previous hooks."""
    before: list[Any] = connection.run_on_commit
    connection.run_on_commit = hooks
    return before


def commit_hook(function: Callable[[], object]) -> object:
    """Return *function* as an ``on_commit`` hook for `put_commit_hooks`."""
    return set[str](), function, False


def run_commit_hooks(connection: Any, hooks: list[Any]) -> None:
    """Run *hooks* of another connection's transaction, as if *connection* had just committed."""
    put_commit_hooks(connection, hooks)
    connection.run_and_clear_commit_hooks()


def end_blocks_inside(connection: Any, block: object, error: BaseException) -> bool:
    """Exit the blocks open inside *block*, as if *error* left them. Return whether there were any."""
    found = False
    while connection.atomic_blocks and connection.atomic_blocks[-1] is not block:
        found = True
        connection.atomic_blocks[-1].__exit__(type(error), error, None)
    return found


def wrappers_of(connection: Any) -> list[Any]:
    """Return the list of wrappers around statements of *connection*. Callers change the list in place."""
    wrappers: list[Any] = connection.execute_wrappers
    return wrappers


def commit_hook_names(connection: Any) -> list[str]:
    """Return the dotted names of the ``on_commit`` hooks of *connection*."""
    functions = [function for _, function, *_ in connection.run_on_commit]
    return [f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', one)}" for one in functions]


def is_outermost(connection: Any) -> bool:
    """Return whether at most one block of *connection* is open, so that its end sends a COMMIT."""
    return len(connection.atomic_blocks) <= 1


def is_in_manual_block(connection: Any) -> bool:
    """Return whether an ``atomic`` block of *connection* is open that began with autocommit off.

    Its end sends no COMMIT: the site calls commit() after it.
    """
    return bool(connection.in_atomic_block and not connection.commit_on_exit)


@contextmanager
def leaving_manual_block(connection: Any) -> Iterator[None]:
    """If this block raises, undo the entry into an ``atomic`` block whose SAVEPOINT is about to be sent.

    With autocommit off `Atomic.__enter__` sends it, and an error there would leave the connection entered.
    """
    try:
        yield
    except BaseException:
        if not connection.savepoint_ids:
            connection.in_atomic_block = False
        raise


def send_commit_by(connection: Any, send: Callable[[Function], None]) -> Callable[[], None]:
    """Let *connection* call *send* instead of sending COMMIT. *send* gets the function that sends it.

    Return a function that restores the previous behaviour.
    """
    return _send_by(connection, "_commit", send)


def send_rollback_by(connection: Any, send: Callable[[Function], None]) -> Callable[[], None]:
    """Let *connection* call *send* instead of sending ROLLBACK. *send* gets the function that sends it.

    Return a function that restores the previous behaviour.
    """
    return _send_by(connection, "_rollback", send)


def close_by(connection: Any, close: Callable[[Function], None]) -> Callable[[], None]:
    """Let *connection* call *close* instead of closing the driver's connection. *close* gets that function.

    Return a function that restores the previous behaviour.
    """
    return _send_by(connection, "_close", close)


def _send_by(connection: Any, name: str, send: Callable[[Function], None]) -> Callable[[], None]:
    before, undo = getattr(connection, name), _undoing(connection, name)
    setattr(connection, name, lambda: send(before))
    return undo


def begin_and_end_by(connection: Any, set_autocommit: Callable[..., None]) -> Callable[[], None]:
    """Replace the ``set_autocommit`` of *connection*. Return a function that restores the previous one.

    Django calls it to begin and to end each outermost ``atomic`` block, and sends no signal for either.
    """
    undo = _undoing(connection, "set_autocommit")
    connection.set_autocommit = set_autocommit
    return undo


def was_raised_by_commit_hook(error: BaseException) -> bool:
    """Return whether an ``on_commit`` hook raised *error*."""
    hooks = BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is hooks:
            return True
        traceback = traceback.tb_next
    return False


# Django: models and users ----------------------------------------------------------------------------------


def loaded_object(value: object) -> object:
    """Return the object that the lazy *value* has loaded; None if it has not been loaded yet.

    Return *value* itself if it is not lazy.
    """
    while isinstance(value, LazyObject):
        value = vars(value)["_wrapped"]
    return None if value is empty else value


def loaded_by_session(request: HttpRequest) -> object:
    """Return the user that Django loaded for ``request.user``, or None.

    The site may have assigned another user to ``request.user`` since.
    """
    user = vars(request).get("_cached_user")
    return None if user is None else loaded_object(user)


def loaded_by_auser(request: HttpRequest) -> object:
    """Return the user that ``await request.auser()`` loaded, or None."""
    return loaded_object(vars(request).get("_acached_user"))


def loaded_rest_user(request: Any) -> object:
    """Return the user that REST framework's *request* authenticated, or None."""
    return loaded_object(vars(request).get("_user"))


def concrete_fields(instance: Model | type[Model]) -> Sequence[Field[Any, Any]]:
    """Return the fields of *instance* that are columns, including the fields of its parent models."""
    return instance._meta.concrete_fields


def cached_relations(instance: Model) -> list[Any]:
    """Return the relations to a single row whose row, or whose lack of one, *instance* has cached."""
    if not instance._state.fields_cache:
        return []
    relations: Sequence[Any] = instance._meta.get_fields()
    return [
        relation
        for relation in relations
        # This leaves out a GenericForeignKey, which is neither a column nor the reverse of one.
        if ((relation.concrete and relation.is_relation) or (relation.auto_created and relation.one_to_one))
        and has_cached(instance, relation)
    ]


def cached_row(instance: Model, relation: Any) -> Model | None:
    """Return the row that *instance* has cached for *relation*, or None if no row is related."""
    row: Model | None = relation.get_cached_value(instance, default=None)
    return row


def has_cached(instance: Model, relation: Any) -> bool:
    """Return whether *instance* has cached the result of *relation*, be it a row or None."""
    return bool(relation.is_cached(instance))


def forget_row(instance: Model, relation: Any) -> None:
    """Drop the cached row of *relation*, so that *instance* loads it again at the next use."""
    relation.delete_cached_value(instance)


def save_through(model: Any, wrap: Callable[[Function], Function]) -> None:
    """Replace ``save_base`` of *model* by what *wrap* makes of it.

    Every way to save a single instance calls ``save_base``.
    """
    model.save_base = wrap(model.save_base)


def value_fields(model: Model | type[Model]) -> list[Field[Any, Any]]:
    """Return the fields of *model* that are columns and not part of the primary key."""
    key = model._meta.pk_fields
    return [field for field in model._meta.concrete_fields if not (field.primary_key or field in key)]


def how_made() -> tuple[bool, Model | None]:
    """Find out why the running ``__init__()`` of a model was called, from the frames that called it.

    Returns:
        Whether the instance is loaded from the database, and the instance that ``refresh_from_db()``
        refreshes with it, or None.
    """
    is_loaded = False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            break
        if frame.f_code is _REFRESH:
            return is_loaded, frame.f_locals["self"]
        # Compare the name, because a model may override from_db().
        is_loaded = is_loaded or frame.f_code.co_name == "from_db"
        frame = frame.f_back
    return is_loaded, None


_REFRESH = Model.refresh_from_db.__code__
#: How many frames to search, from a signal's receiver in ``__init__()`` up to ``refresh_from_db()``.
_DEPTH = 16
