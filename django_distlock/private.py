"""What distlock leans on that Django, REST framework, django-ninja and asgiref do not promise to keep.

Each such name stands here only. tests/django_distlock/test_private*.py fail where one is gone, and say what
to look at. Nothing here imports a library that the site may not have.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.redis import RedisCache
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponseBase
from django.urls import ResolverMatch, URLPattern
from django.utils.decorators import method_decorator

Function = Callable[..., Any]

# Django: views ---------------------------------------------------------------------------------------------


def opted_out(view: object) -> set[str]:
    """The database aliases that ``@transaction.non_atomic_requests`` has named for *view*."""
    aliases: set[str] = getattr(view, "_non_atomic_requests", set())
    return aliases


def opt_out(view: Any, aliases: set[str]) -> None:
    """Let `opted_out` give *aliases* for *view*: Django opens no transaction around it where one is in it."""
    view._non_atomic_requests = aliases


def is_dummy(function: Function) -> bool:
    """Whether *function* is what ``@method_decorator`` tries its decorators on, once a method."""
    return function.__module__ == "django.utils.decorators"


def is_bound_by_method_decorator(function: object) -> bool:
    """Whether *function* is what ``@method_decorator`` makes of a method for each call."""
    return isinstance(function, functools.partial) and inspect.ismethod(function.func)


_atomic = transaction.atomic(lambda: None)
_method = method_decorator(lambda function: function)(lambda self: None)


def decorators_of(wrapper: object) -> list[Any]:
    """What *wrapper* applies to a function, the outermost first; none where that is not known.

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


def makes_content_later(response: object) -> bool:
    """Whether code of the site makes the content of *response* while it is sent. A file is none."""
    return getattr(response, "streaming", False) and getattr(response, "file_to_stream", None) is None


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
    """Whether the innermost block of *connection* will be rolled back."""
    return bool(connection.needs_rollback)


def mark(connection: Any) -> None:
    """Let the innermost block of *connection* be rolled back, also where none is open any more."""
    connection.needs_rollback = True


def was_closed_inside(connection: Any) -> bool:
    """Whether *connection* was closed inside of its ``atomic`` block."""
    return bool(connection.closed_in_transaction)


def has_commit_hooks(connection: Any) -> bool:
    """Whether functions wait for the COMMIT of *connection*."""
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
    """What is around the statements of *connection*: to be changed in place."""
    wrappers: list[Any] = connection.execute_wrappers
    return wrappers


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
            # Somebody around us has replaced it, too.
            connection.set_autocommit = before

    return undo


def was_raised_by_commit_hook(error: BaseException) -> bool:
    """Whether *error* came out of an ``on_commit`` hook."""
    hooks = BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is hooks:
            return True
        traceback = traceback.tb_next
    return False


# Django and django-redis: caches ---------------------------------------------------------------------------


def redis_that_writes(cache: BaseCache) -> Any:
    """The client of redis-py that *cache* writes with; None: it has none. Connects to nothing."""
    if isinstance(cache, RedisCache):
        return cache._cache.get_client(write=True)
    theirs = sys.modules.get("django_redis.cache")
    if theirs is not None and isinstance(cache, theirs.RedisCache):
        return cache.client.get_client(write=True)
    return None


# REST framework --------------------------------------------------------------------------------------------


def is_rest(cls: type) -> bool:
    """Whether *cls* is a view of REST framework."""
    views = sys.modules.get("rest_framework.views")
    return views is not None and issubclass(cls, views.APIView)


def is_api_view(cls: type) -> bool:
    """Whether *cls* is what ``@api_view`` made of a function."""
    return is_rest(cls) and cls.__qualname__ == "WrappedAPIView"


def function_of_api_view(cls: Any) -> Function:
    """The function that ``@api_view`` made *cls* of."""
    handler = next(vars(cls)[name] for name in cls.http_method_names if name in vars(cls))
    function: Function = _enclosed(handler)["func"]
    return function


def django_request(request: Any) -> HttpRequest:
    """Django's request inside that of REST framework, or *request* itself."""
    inner: HttpRequest = getattr(request, "_request", request)
    return inner


def dispatch_through(cls: Any, prepare: Callable[[Any, HttpRequest], None]) -> None:
    """Call *prepare* with each view of *cls* and its request, before its dispatch(). Once for each class."""
    if hasattr(cls.__dict__.get("dispatch"), "_distlock_prepares"):
        return
    inner = cls.dispatch

    @functools.wraps(inner)
    def dispatch(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        prepare(self, request)
        return inner(self, request, *args, **kwargs)

    dispatch._distlock_prepares = True  # type: ignore[attr-defined]
    cls.dispatch = dispatch


def handle_exceptions_by(view: Any, handle: Callable[[Exception], HttpResponseBase]) -> None:
    """Let *handle* answer what is raised in *view*, which serves one request."""
    view.handle_exception = handle


def call_handler_through(view: Any, name: str, handler: Function) -> None:
    """Let *handler* stand in the place of the method *name* of *view*, which serves one request."""
    setattr(view, name, handler)


# django-ninja ----------------------------------------------------------------------------------------------


def is_ninja_operation(function: object) -> bool:
    """Whether a decorator of django-ninja has taken *function*: what stands above it is never called."""
    return hasattr(function, "_ninja_operation")


# asgiref ---------------------------------------------------------------------------------------------------


def has_thread_of_its_own() -> bool:
    """Whether `sync_to_async` has a thread for the running request. Else all tasks share one."""
    return SyncToAsync.thread_sensitive_context.get(None) is not None


def request_threads() -> list[int]:
    """Where `sync_to_async` does the work of the running request: a thread, none before the first work."""
    executor: Any = getattr(AsyncToSync.executors, "current", None)
    if executor is None and (request := SyncToAsync.thread_sensitive_context.get(None)) is not None:
        executor = SyncToAsync.context_to_thread_executor.get(request)
    # Of another kind, which a server may give, no thread is known.
    threads = [*getattr(executor, "_threads", ()), getattr(executor, "_work_thread", None)]
    return [thread.ident for thread in threads if thread is not None and thread.ident is not None]
