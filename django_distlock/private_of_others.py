"""All uses of private names of REST framework, django-ninja, asgiref and Redis caches.

Any release of these libraries may change such a name. Then a test in tests/django_distlock/test_private*.py
fails and says what to look at. `private` has the private names of Django. This module imports no library that
a site may lack.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CoroutineType, FrameType
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.redis import RedisCache
from django.http import HttpRequest, HttpResponseBase

Function = Callable[..., Any]

# Django and django-redis: caches ---------------------------------------------------------------------------


def redis_that_writes(cache: BaseCache) -> Any:
    """Return the redis-py client that *cache* writes with, or None if it has none. Does not connect."""
    if isinstance(cache, RedisCache):
        return cache._cache.get_client(write=True)
    theirs = sys.modules.get("django_redis.cache")
    if theirs is not None and isinstance(cache, theirs.RedisCache):
        return cache.client.get_client(write=True)
    return None


# REST framework --------------------------------------------------------------------------------------------


def is_rest(cls: type) -> bool:
    """Return whether *cls* is a view of REST framework."""
    views = sys.modules.get("rest_framework.views")
    return views is not None and issubclass(cls, views.APIView)


def is_api_view(cls: type) -> bool:
    """Return whether ``@api_view`` made *cls* from a function."""
    return is_rest(cls) and cls.__qualname__ == "WrappedAPIView"


def function_of_api_view(cls: Any) -> Function:
    """Return the function from which ``@api_view`` made *cls*."""
    handler = next(vars(cls)[name] for name in cls.http_method_names if name in vars(cls))
    function: Function = inspect.getclosurevars(handler).nonlocals["func"]
    return function


def django_request(request: Any) -> HttpRequest:
    """Return Django's request, if *request* is REST framework's wrapper around it; else *request*."""
    inner: HttpRequest = getattr(request, "_request", request)
    return inner


def dispatch_through(cls: Any, prepare: Callable[[Any, HttpRequest], None]) -> None:
    """Call *prepare* with the view and its request before each dispatch() of *cls*. Idempotent."""
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
    """Let *handle* make the responses to exceptions in *view*, which serves one request."""
    view.handle_exception = handle


def call_handler_through(view: Any, name: str, handler: Function) -> None:
    """Replace the method *name* of *view*, which serves one request, by *handler*."""
    setattr(view, name, handler)


# django-ninja ----------------------------------------------------------------------------------------------


def is_ninja_operation(function: object) -> bool:
    """Return whether django-ninja has registered *function*: it calls no decorator above the registration."""
    return hasattr(function, "_ninja_operation")


def note_ninja_exceptions(note: Callable[[HttpRequest], None]) -> None:
    """Call *note* with each request for which django-ninja turns an exception into a response.

    Wraps ``on_exception`` of `NinjaAPI` and of each subclass that exists now. Classes that were wrapped
    before are left alone. Does nothing if django-ninja is not imported.
    """
    ninja = sys.modules.get("ninja.main")
    if ninja is None:
        return
    classes = [ninja.NinjaAPI]
    for cls in classes:
        classes += cls.__subclasses__()
        inner = cls.__dict__.get("on_exception")
        if inner is not None and not isinstance(inner, _NotingExceptions):
            cls.on_exception = _NotingExceptions(inner, note)


class _NotingExceptions:
    """A wrapper around ``on_exception`` of a class of APIs, and around one that the site sets on an instance.

    As a data descriptor, it has precedence over the attributes of the instance.
    """

    def __init__(self, inner: Any, note: Callable[[HttpRequest], None]) -> None:
        self._inner = inner
        self._note = note

    def __get__(self, api: Any, owner: type) -> Any:
        if api is None:
            return self._noting(self._inner.__get__(None, owner))
        mine = vars(api).get("on_exception")
        # If a subclass's on_exception() calls super(), it wants the class's method, not the instance's.
        having = next(cls for cls in type(api).__mro__ if "on_exception" in vars(cls))
        if mine is None or vars(having)["on_exception"] is not self:
            return self._noting(self._inner.__get__(api, owner))
        return self._noting(mine)

    def __set__(self, api: Any, value: Any) -> None:
        vars(api)["on_exception"] = value

    def __delete__(self, api: Any) -> None:
        try:
            del vars(api)["on_exception"]
        except KeyError:
            raise AttributeError("on_exception") from None

    def _noting(self, on_exception: Function) -> Function:
        @functools.wraps(on_exception)
        def on_exception_and_note(*args: Any, **kwargs: Any) -> Any:
            request = next((one for one in (*args, *kwargs.values()) if isinstance(one, HttpRequest)), None)
            if request is not None:
                self._note(request)
            return on_exception(*args, **kwargs)

        return on_exception_and_note


# asgiref ---------------------------------------------------------------------------------------------------


def has_asgi_thread() -> bool:
    """Return whether a `ThreadSensitiveContext` gives `sync_to_async` a thread for this request alone.

    Django's ASGI handler opens one for each request. Under WSGI the result is False.
    """
    return SyncToAsync.thread_sensitive_context.get(None) is not None


def request_threads() -> list[int]:
    """Return a list with the id of the thread in which `sync_to_async` runs the work of this request.

    It is empty before the thread's first work, and if the thread is unknown.
    """
    executor: Any = getattr(AsyncToSync.executors, "current", None)
    if executor is None and (request := SyncToAsync.thread_sensitive_context.get(None)) is not None:
        executor = SyncToAsync.context_to_thread_executor.get(request)
    # The server may run a kind of executor whose thread is unknown.
    threads = [*getattr(executor, "_threads", ()), getattr(executor, "_work_thread", None)]
    return [thread.ident for thread in threads if thread is not None and thread.ident is not None]


def awaiting_frames() -> Iterator[FrameType]:
    """Yield the frames of the coroutines that await this thread by `sync_to_async`, the innermost first."""
    loop = getattr(SyncToAsync.threadlocal, "main_event_loop", None)
    mark = getattr(SyncToAsync.threadlocal, "task_context", None)
    if loop is None or mark is None or asyncio._get_running_loop() is not None:
        return
    # The coroutine may still be running when the thread that it started runs. So search the suspended
    # coroutines, the running one, and the suspended ones again: it may have been suspended in between.
    for frames in (_suspended_frames, _running_frames, _suspended_frames):
        if found := frames(loop, mark):
            yield from found
            return


def _suspended_frames(loop: asyncio.AbstractEventLoop, mark: object) -> list[FrameType]:
    for task in asyncio.all_tasks(loop):
        awaited: list[Any] = [task.get_coro()]
        while isinstance(inner := getattr(awaited[-1], "cr_await", None), CoroutineType):
            awaited.append(inner)
        # The innermost coroutine refers to the list that it handed to the thread as `task_context`.
        if any(one is mark for one in gc.get_referents(awaited[-1])):
            return [one.cr_frame for one in reversed(awaited) if one.cr_frame is not None]
    return []


def _running_frames(loop: asyncio.AbstractEventLoop, mark: object) -> list[FrameType]:
    frame = sys._current_frames().get(getattr(loop, "_thread_id", None) or 0)
    while frame is not None and frame.f_locals.get("task_context") is not mark:
        frame = frame.f_back
    frames = []
    while frame is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frames.append(frame)
        frame = frame.f_back
    return frames
