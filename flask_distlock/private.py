"""All that we lean on of Flask, Werkzeug, SQLAlchemy and the libraries beside them, and that they may change.

Some of it is documented, and said to be internal. Each function has a test that says where to look when it
fails.
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

#: The names of a `flask.views.MethodView` that answer requests.
METHOD_NAMES: frozenset[str] = frozenset(http_method_funcs)

_SAVEPOINTS = {"savepoint", "rollback_to_savepoint", "release_savepoint"}


def views_of(app: Flask) -> dict[str, Callable[..., Any]]:
    """Return the views of *app* by endpoint, as it calls them: what is put there is served."""
    return app.view_functions


def run_first(app: Flask, hook: Callable[[], None]) -> None:
    """Run *hook* before all that `Flask.before_request` has registered."""
    app.before_request_funcs.setdefault(None, []).insert(0, hook)


def error_handlers_of(app: Flask) -> dict[type[Exception], Callable[[Any], Any]]:
    """Return the error handlers that *app* has for classes of exceptions, without those of blueprints."""
    return app.error_handler_spec[None][None]


def may_change_arguments(app: Flask, endpoint: str) -> bool:
    """Tell whether a ``url_value_preprocessor`` of *app*, or of *endpoint*'s blueprints, may change them."""
    scopes: list[str | None] = [None]
    blueprint = endpoint
    while (blueprint := blueprint.rpartition(".")[0]) != "":
        scopes.append(blueprint)
    return any(app.url_value_preprocessors.get(scope) for scope in scopes)


def has_stream(request: Request) -> bool:
    """Tell whether Werkzeug has made a stream of *request*'s body, as it does when it begins to read."""
    return "stream" in vars(request)


def put_around(app: Flask, name: str, around: Callable[[F], F]) -> None:
    """Let *app* call what *around* makes of its method *name*, which it calls by that name itself."""
    setattr(app, name, around(getattr(app, name)))


def is_made_by_as_view(function: object) -> bool:
    """Tell whether *function* is what `View.as_view` makes of a class, before the class's ``decorators``."""
    return getattr(function, "__code__", None) in _MADE_BY_AS_VIEW and not hasattr(function, "__wrapped__")


def has_own_as_view(cls: type[View]) -> bool:
    """Tell whether *cls* makes its views by itself."""
    return cls.as_view.__func__ is not View.as_view.__func__  # type: ignore[attr-defined]


def answers_options(route: Route) -> bool:
    """Tell whether Flask answers OPTIONS for *route*, and runs no view."""
    return bool(getattr(route, "provide_automatic_options", False))


def converters_of(route: Route) -> Mapping[str, BaseConverter]:
    """Return the converters of *route*'s arguments, by name; empty if Werkzeug does not tell."""
    converters: Mapping[str, BaseConverter] = getattr(route, "_converters", {})
    return converters


def converts(converter: BaseConverter) -> bool:
    """Tell whether *converter* may give something else than the text of the URL."""
    return type(converter).to_python is not BaseConverter.to_python


def runs_on_close(response: Response) -> bool:
    """Tell whether *response* has callbacks of `Response.call_on_close`; the end of an iterator is none."""
    for callback in getattr(response, "_on_close", ()):
        if not hasattr(getattr(callback, "__self__", None), "__next__"):
            return True
    return False


def redis_that_writes(cache: object) -> Any:
    """Return the client of redis-py that *cache*, one of Flask-Caching, writes with; None: it has none."""
    return getattr(cache, "_write_client", None)


def is_of_smorest(handler: object) -> bool:
    """Tell whether Flask-Smorest is what *handler*, one of an app's error handlers, comes from."""
    return getattr(handler, "__module__", "").partition(".")[0] == "flask_smorest"


def is_savepoint(context: Any) -> bool:
    """Tell whether the statement of *context*, SQLAlchemy's, is one of ``session.begin_nested()``."""
    statement = getattr(context.compiled, "statement", None)
    return getattr(statement, "__visit_name__", "") in _SAVEPOINTS


def listeners_at_begin(session: Session | None, engine: Engine) -> Iterable[Callable[..., Any]]:
    """Yield what listens for the beginning of a transaction of *session*, or on *engine*."""
    if session is not None:
        yield from session.dispatch.after_begin
    yield from engine.dispatch.begin
    yield from engine.pool.dispatch.checkout


def is_last_at_commit(connection: Connection, listener: Callable[..., Any]) -> bool:
    """Tell whether *listener* is the last that hears of the COMMIT of *connection*."""
    *_, last = [None, *connection.dispatch.commit]
    return last is listener


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


#: It makes one of two functions.
_MADE_BY_AS_VIEW = frozenset(_codes_in(View.as_view.__func__.__code__))  # type: ignore[attr-defined]
