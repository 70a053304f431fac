"""Guards views of Django REST framework: locks after authentication, permissions and throttling.

`APIView.dispatch` runs all of these before it calls the handler. So the handler is guarded, on the view
instance that serves one request, and Django opens no transaction around the view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest
from rest_framework.exceptions import APIException

from distlock.errors import ConfigurationError, LockError
from distlock.web.answers import Answer
from distlock.web.guard_marks import Guarded, When, guard_at
from distlock.web.guard_options import GuardOptions, Methods
from distlock.web.guard_stack import stack_with
from django_distlock.guarding import view_classes
from django_distlock.guarding.atomic_requests import SyncTransactions, take_over
from django_distlock.guarding.call_context import CallContext, async_in_rest
from django_distlock.guarding.guarded_call import run
from django_distlock.guarding.request import answer_to, keep_body
from django_distlock.private_of_others import (
    call_handler_through,
    dispatch_through,
    django_request,
    handle_exceptions_by,
)

#: The attribute of a request with its guards until dispatch() of the view begins, the outermost first.
_GUARDS = "_distlock_guards"

#: `APIView.dispatch`, and the methods that it calls before the handler.
BEFORE_HANDLERS = (
    "dispatch",
    "initialize_request",
    "initial",
    "perform_content_negotiation",
    "determine_version",
    "perform_authentication",
    "check_permissions",
    "check_throttles",
)

#: The attribute of a view with the stacked guards on its dispatch() that were entered so far, the outermost
#: first. The lowest guard of the stack puts all of them around the handler, and empties the list.
_ABOVE = "_distlock_above"

#: Marks a view whose handler is guarded.
_GUARDED = "_distlock_guarded"


class Refused(APIException):  # type: ignore[misc]  # REST framework has no types
    """A lock error as an exception of REST framework, which the site's ``EXCEPTION_HANDLER`` handles."""

    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.code = answer.code
        # REST framework's handler makes the header Retry-After from `wait`.
        self.wait = answer.retry_after
        # Set it directly: the __init__() of the base class would turn numbers into text.
        self.detail = answer.problem()

    def __str__(self) -> str:
        return f"{self.code}: {self.detail['detail']}"

    def get_codes(self) -> str:
        return self.code

    def get_full_details(self) -> dict[str, object]:
        return {"message": self.detail, "code": self.code}


@contextmanager
def refusing(guarded: Guarded, view: Any) -> Iterator[None]:
    """Turn lock errors of the block that have an answer into `Refused`."""
    try:
        yield
    except LockError as error:
        answer = answer_to(error, guarded.where, guarded.options.responds)
        if answer is None:
            raise
        view.headers["Cache-Control"] = "no-store"
        raise Refused(answer) from error


def guard_callback(
    callback: Callable[..., Any], options: GuardOptions, *, methods: Methods | None, when: When | None
) -> Callable[..., Any]:
    """Return *callback*, of a view of REST framework, in a guard: see `views.guard_view`."""
    cls: Any = view_classes.view_class(callback)
    if cls.view_is_async:
        raise ConfigurationError(async_in_rest(options, cls))
    guarded = view_classes.guarded_callback(callback, options, methods=methods, when=when)
    view_classes.refuse_own_dispatch(guarded, cls)

    @functools.wraps(callback)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        around = request.__dict__.setdefault(_GUARDS, [])
        with ExitStack() as stack:
            if not any(one.locks_method(request.method) for one in (guarded, *(one for one, _ in around))):
                # No guard locks this method, so none of them opens Django's transactions.
                stack.enter_context(transactions.unlocked())
            # Add the guard for any method: code of the site may change the method before dispatch() looks.
            around.append((guarded, of_handler))
            try:
                return callback(request, *args, **kwargs)
            finally:
                # The guard is still in the list if code around dispatch() has answered.
                if (guarded, of_handler) in around:
                    around.remove((guarded, of_handler))

    opt_outs = take_over(wrapper, callback)
    transactions = SyncTransactions(guarded.where, opt_outs, callback)
    of_handler = SyncTransactions(guarded.where, opt_outs)
    guarded.below = stack_with(guarded, callback)
    guarded.mark(wrapper)
    dispatch_through(cls, _guard_dispatch)
    return wrapper


def run_dispatch(
    guarded: Guarded, transactions: SyncTransactions, body: Callable[[], Any], context: CallContext
) -> Any:
    """Run *body*, the guarded dispatch() of a view, and guard the handler that it calls."""
    with ExitStack() as stack:
        above = vars(context.view).setdefault(_ABOVE, [])
        if context.locks_method(guarded, context.request.method):
            view_classes.refuse_own_dispatch(guarded, type(context.view))
        elif not hasattr(context.view, _GUARDED) and not any(
            one.locks_method(upper, one.request.method) for upper, _, one in above
        ):
            stack.enter_context(transactions.unlocked())
        # Guards directly on each other run from the highest to the lowest. The lowest wraps the handler first
        # and the highest last, so they are in the same order around the handler.
        above.append((guarded, transactions, context))
        while above and guard_at(guarded.function) is None:
            _guard_handlers(context.view, context.request, *above.pop())
        return body()


def _guard_dispatch(view: Any, request: HttpRequest) -> None:
    """Put the guards that *request* carries around the handler of *view*."""
    guards = request.__dict__.get(_GUARDS, [])
    while guards:
        _guard_handlers(view, request, *guards.pop())


def _guard_handlers(
    view: Any,
    request: HttpRequest,
    guarded: Guarded,
    transactions: SyncTransactions,
    context: CallContext | None = None,
) -> None:
    """Let *view*, which serves only this *request*, acquire the lock when its handler is called.

    *context*: the placement of a guard on ``dispatch()``; None for a guard around the view.
    """
    is_method = context is not None and context.is_method

    def is_locked() -> bool:
        method = request.method
        if context is None:
            return guarded.locks_method(method)
        return context.locks_method(guarded, method or "")

    method = request.method
    if is_locked():
        _guard_handler(view, request, guarded, transactions, is_method)
    if not _may_change_method(type(view)):  # type: ignore[arg-type]
        return
    initial = view.initial

    def initial_and_look_again(*args: Any, **kwargs: Any) -> None:
        initial(*args, **kwargs)
        if args:
            # dispatch() uses the method of REST framework's request, which the site may have changed.
            request.method = args[0].method
        # dispatch() looks up the handler next.
        if request.method != method and is_locked():
            _guard_handler(view, request, guarded, transactions, is_method)

    view.initial = initial_and_look_again


@functools.lru_cache(maxsize=1024)
def _may_change_method(cls: type) -> bool:
    """Return whether code of the site runs in *cls* before dispatch() looks up the handler."""
    return bool(view_classes.overriding(cls, BEFORE_HANDLERS))


def _guard_handler(
    view: Any,
    request: HttpRequest,
    guarded: Guarded,
    transactions: SyncTransactions,
    is_method: bool,
) -> None:
    """Put the guard around the handler of *view* for the method of *request*.

    *is_method*: the guard is on a method, so that its names are filled in with *view* as first argument.
    """
    handle = view.handle_exception
    unhandled: list[Exception] = []

    def handle_exception(error: Exception) -> Any:
        if error in unhandled:
            # `handler_in_transaction` has called *handle* with it already.
            raise error
        with _apart():
            return handle(error)

    # Set it even if the view has no handler for the method.
    handle_exceptions_by(view, handle_exception)
    name = (request.method or "").lower()
    if name not in view.http_method_names or not hasattr(view, name):
        if view_classes.is_of_framework_in(type(view).http_method_not_allowed):
            return
        name = "http_method_not_allowed"
    handler = getattr(view, name)

    keep_body(request, guarded.names)
    innermost = not hasattr(view, _GUARDED)
    setattr(view, _GUARDED, True)

    def handler_in_transaction(*args: Any, **kwargs: Any) -> Any:
        # Handle exceptions inside the transaction of ATOMIC_REQUESTS: the exception handler rolls it back.
        try:
            with refusing(guarded, view):
                return handler(*args, **kwargs)
        except Exception as error:
            try:
                return handle(error)
            except Exception:
                unhandled.append(error)
                raise

    @functools.wraps(handler)
    def guarded_handler(rest_request: Any, *args: Any, **kwargs: Any) -> Any:
        def body() -> Any:
            return handler_in_transaction(rest_request, *args, **kwargs)

        given = (rest_request, *args)
        if guarded.when is not None and not guarded.when(*given, **kwargs):
            if innermost:
                with transactions.unlocked():
                    return body()
            return body()
        with refusing(guarded, view):
            context = CallContext("handler", rest_request, django_request(rest_request), view, is_method)
            seen = (view, *given) if is_method else given
            # run() may set `compare_first`, for this call only.
            return run(guarded, copy(transactions), body, context, seen, kwargs)

    call_handler_through(view, name, guarded_handler)


@contextmanager
def _apart() -> Iterator[None]:
    """Keep REST framework's exception handler from rolling back the transaction of a `TestCase`."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(transaction.atomic(using=connection.alias))
        yield
