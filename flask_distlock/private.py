"""All uses of names that Flask, Werkzeug, SQLAlchemy and libraries beside them may change.

Some of these names are internal. Each function has a test, which fails and names this file after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from flask import Flask, Request, Response
from flask.views import View, http_method_funcs
from werkzeug.routing import BaseConverter
from werkzeug.routing import Rule as Route

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

F = TypeVar("F", bound=Callable[..., Any])

#: The names of the methods of a `flask.views.MethodView` that answer requests, such as "get".
METHOD_NAMES: frozenset[str] = frozenset(http_method_funcs)

_SAVEPOINTS = {"savepoint", "rollback_to_savepoint", "release_savepoint"}


def views_of(app: Flask) -> dict[str, Callable[..., Any]]:
    """Return the dict of the views of *app* by endpoint. Callers change it to replace views."""
    return app.view_functions


def run_first(app: Flask, hook: Callable[[], None]) -> None:
    """Make *hook* the first of the ``before_request`` hooks of *app*."""
    app.before_request_funcs.setdefault(None, []).insert(0, hook)


def error_handlers_of(app: Flask) -> dict[type[Exception], Callable[[Any], Any]]:
    """Return the dict of the error handlers of *app* itself for classes of exceptions."""
    return app.error_handler_spec[None][None]


def may_change_arguments(app: Flask, endpoint: str) -> bool:
    """Return whether a ``url_value_preprocessor`` may change the route's arguments for *endpoint*."""
    scopes: list[str | None] = [None]
    blueprint = endpoint
    while (blueprint := blueprint.rpartition(".")[0]) != "":
        scopes.append(blueprint)
    return any(app.url_value_preprocessors.get(scope) for scope in scopes)


def has_stream(request: Request) -> bool:
    """Return whether Werkzeug has begun to read the body of *request*, for which it makes a stream."""
    return "stream" in vars(request)


def put_around(app: Flask, name: str, around: Callable[[F], F]) -> None:
    """Replace the method *name* of *app*, which Flask itself calls, by what *around* returns for it."""
    setattr(app, name, around(getattr(app, name)))


def is_made_by_as_view(function: object) -> bool:
    """Return whether `View.as_view` made *function*, and the class's ``decorators`` do not wrap it."""
    return getattr(function, "__code__", None) in _MADE_BY_AS_VIEW and not hasattr(function, "__wrapped__")


def has_own_as_view(cls: type[View]) -> bool:
    """Return whether *cls* overrides ``as_view()``."""
    return cls.as_view.__func__ is not View.as_view.__func__  # type: ignore[attr-defined]


def answers_options(route: Route) -> bool:
    """Return whether Flask itself answers OPTIONS for *route*, without running the view."""
    return bool(getattr(route, "provide_automatic_options", False))


def converters_of(route: Route) -> Mapping[str, BaseConverter]:
    """Return the converters of *route*'s arguments, by name; empty if Werkzeug keeps them elsewhere."""
    converters: Mapping[str, BaseConverter] = getattr(route, "_converters", {})
    return converters


def converts(converter: BaseConverter) -> bool:
    """Return whether *converter* may return anything but the text of the URL."""
    return type(converter).to_python is not BaseConverter.to_python


def runs_on_close(response: Response) -> bool:
    """Return whether *response* has callbacks of `Response.call_on_close`."""
    # Werkzeug keeps the close() of the content's iterators in the same list.
    for callback in getattr(response, "_on_close", ()):
        if not hasattr(getattr(callback, "__self__", None), "__next__"):
            return True
    return False


def redis_that_writes(cache: object) -> Any:
    """Return the redis-py client with which *cache*, of Flask-Caching, writes, or None if it has none."""
    return getattr(cache, "_write_client", None)


def is_of_smorest(handler: object) -> bool:
    """Return whether *handler*, an error handler of an app, comes from flask-smorest."""
    return getattr(handler, "__module__", "").partition(".")[0] == "flask_smorest"


def is_savepoint(context: Any) -> bool:
    """Return whether SQLAlchemy's *context* is of a statement that ``session.begin_nested()`` sends."""
    statement = getattr(context.compiled, "statement", None)
    return getattr(statement, "__visit_name__", "") in _SAVEPOINTS


def has_begun(session: Session, connection: Connection) -> bool:
    """Return whether *session* itself has begun the open transaction of *connection*, and has not joined it.

    With ``join_transaction_mode="control_fully"``, a joined transaction counts as begun: the session ends it.
    """
    transaction = session.get_transaction()
    known = None if transaction is None else transaction._connections.get(connection)
    if known is None:
        return False
    _, begun, ends, _ = known
    # A session that joins with a savepoint ends only the savepoint.
    return ends and begun is connection.get_transaction()


def listeners_at_begin(session: Session | None, engine: Engine) -> Iterable[Callable[..., Any]]:
    """Yield the listeners that are called when a transaction of *session*, or on *engine*, begins."""
    if session is not None:
        yield from session.dispatch.after_begin
    yield from engine.dispatch.begin
    yield from engine.pool.dispatch.checkout


def is_last_at_commit(connection: Connection, listener: Callable[..., Any]) -> bool:
    """Return whether *listener* is the last listener to the COMMIT of *connection*."""
    *_, last = [None, *connection.dispatch.commit]
    return last is listener


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


#: The code of the functions that `View.as_view` may return.
_MADE_BY_AS_VIEW = frozenset(_codes_in(View.as_view.__func__.__code__))  # type: ignore[attr-defined]
