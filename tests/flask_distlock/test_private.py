"""What is private to other libraries is used in one file, and each use fails here when it no longer holds."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flask_smorest
import pytest
import redis
from flask import Blueprint, Flask, Response
from flask import request as flask_request
from flask.views import MethodView, View
from flask_caching import Cache
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session
from werkzeug.exceptions import HTTPException
from werkzeug.routing import IntegerConverter, UnicodeConverter

import flask_distlock
from flask_distlock import private


def leans(change: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test fails with *change*: what others have changed, and what that would do to us."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            try:
                test(**fixtures)
            except Exception as error:
                raise AssertionError(f"Look at flask_distlock/private.py: {change}") from error

        return run

    return decorate


@pytest.fixture
def app() -> Flask:
    app = Flask(__name__)
    app.testing = True
    return app


class Buy(MethodView):
    def post(self) -> str:
        return "sold"


@leans("Request.stream is no cached property any more: a body may be read twice, or not before its lock.")
def test_that_a_body_has_been_begun_to_read_is_known(app: Flask) -> None:
    with app.test_request_context("/", method="POST", data=b"ordered"):
        request = flask_request._get_current_object()  # type: ignore[attr-defined]
        _ = request.content_length, request.content_type, request.is_json
        assert not private.has_stream(request)
        assert request.get_data() == b"ordered"
        assert private.has_stream(request)


@leans("Werkzeug keeps elsewhere what call_on_close() is given: nobody is told that it runs after the lock.")
def test_what_runs_when_a_response_is_closed_is_seen() -> None:
    response = Response(iter(["sold"]))
    # It keeps the end of the iterator, which is no callback of the site.
    response.make_sequence()
    assert not private.runs_on_close(response)
    response.call_on_close(lambda: None)
    assert private.runs_on_close(response)


@leans("Flask no longer serves what stands in view_functions, where rules put their guards.")
def test_what_is_put_among_the_views_is_served(app: Flask) -> None:
    app.add_url_rule("/", "buy", lambda: "plain")
    private.views_of(app)["buy"] = lambda: "guarded"
    assert app.test_client().get("/").text == "guarded"


@leans(
    "Flask no longer runs before_request_funcs[None] in their order: a hook of the site might "
    "hide that a guard is misplaced."
)
def test_a_hook_is_run_before_those_that_were_registered_earlier(app: Flask) -> None:
    ran: list[str] = []
    app.before_request(lambda: ran.append("theirs"))
    private.run_first(app, lambda: ran.append("ours"))
    app.test_client().get("/")
    assert ran == ["ours", "theirs"]


@leans("Flask no longer asks error_handler_spec[None][None], where lock errors have their answer.")
def test_what_is_put_among_the_error_handlers_answers(app: Flask) -> None:
    def view() -> str:
        raise KeyError

    app.add_url_rule("/", "buy", view)
    private.error_handlers_of(app)[KeyError] = lambda error: "handled"
    assert app.test_client().get("/").text == "handled"


@pytest.mark.parametrize("where", ["nowhere", "app", "blueprint", "other blueprint"])
@leans(
    "Flask keeps url_value_preprocessors elsewhere: names would be checked against arguments that "
    "views don't get."
)
def test_what_may_change_the_arguments_of_a_route_is_seen(app: Flask, where: str) -> None:
    outer, inner, other = (Blueprint(name, __name__) for name in ("outer", "inner", "other"))
    {"app": app, "blueprint": outer, "other blueprint": other}.get(where, Flask("x")).url_value_preprocessor(
        lambda endpoint, values: None
    )
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    app.register_blueprint(other)
    assert private.may_change_arguments(app, "outer.inner.buy") == (where in {"app", "blueprint"})


@pytest.mark.parametrize("name", ["dispatch_request", "process_response", "async_to_sync"])
@leans("Flask no longer calls this method of the app, around which a guard has to stand.")
def test_the_app_calls_what_is_put_around_its_methods(app: Flask, name: str) -> None:
    async def view() -> str:
        return "sold"

    called: list[str] = []

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            called.append(name)
            return method(*args)

        return noted

    private.put_around(app, name, around)
    app.add_url_rule("/", "buy", view)
    assert app.test_client().get("/").text == "sold"
    assert called


@pytest.mark.parametrize("every", [True, False])
@leans("View.as_view makes its views otherwise: guards on classes would not be compared with routes.")
def test_what_as_view_makes_is_known(every: bool) -> None:
    class Plain(Buy):
        init_every_request = every

    def wrapped(view: Any) -> Any:
        return lambda **arguments: view(**arguments)

    class Decorated(Plain):
        decorators = [wrapped]

    known = [private.is_made_by_as_view(cls.as_view("buy")) for cls in (Plain, Decorated)]
    assert known == [True, False]
    assert not private.is_made_by_as_view(lambda: None)


@leans("as_view is no classmethod any more: the decorators of such classes would lock nothing.")
def test_a_class_that_makes_its_views_by_itself_is_known() -> None:
    class Itself(Buy):
        @classmethod
        def as_view(cls, name: str, *args: Any, **kwargs: Any) -> Any:
            return lambda: "sold"

    assert [private.has_own_as_view(cls) for cls in (View, Buy, Itself)] == [False, False, True]


@leans("flask.views.http_method_funcs no longer says which methods of a MethodView answer.")
def test_the_names_of_methods_that_answer_are_known() -> None:
    methods = Buy.methods or set()
    assert {"post"} == private.METHOD_NAMES & set(vars(Buy)) == {name.lower() for name in methods}


@leans(
    "Flask marks otherwise for which routes it answers OPTIONS: a guard that locks nothing else "
    "would not be refused."
)
def test_that_flask_answers_options_is_known(app: Flask) -> None:
    app.add_url_rule("/", "one", lambda: "")
    app.add_url_rule("/all", "all", lambda: "", methods=["OPTIONS"])
    known = {route.endpoint: private.answers_options(route) for route in app.url_map.iter_rules()}
    assert (known["one"], known["all"]) == (True, False)


@leans(
    "Werkzeug keeps the converters of a route elsewhere than in _converters, or they convert otherwise: a "
    "bare <sku> over text would not be refused."
)
def test_the_converters_of_a_route_are_known(app: Flask) -> None:
    app.add_url_rule("/<int:id>/<sku>", "buy", lambda id, sku: "")
    (route,) = app.url_map.iter_rules("buy")
    converters = private.converters_of(route)
    assert {name: type(one) for name, one in converters.items()} == {
        "id": IntegerConverter,
        "sku": UnicodeConverter,
    }
    assert [private.converts(one) for one in converters.values()] == [True, False]


@leans("Flask-Smorest handles HTTPException otherwise: its answers would lose our code.")
def test_a_site_with_smorest_is_known(app: Flask) -> None:
    app.config.update(API_TITLE="Shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    assert not private.is_of_smorest(private.error_handlers_of(app).get(HTTPException))
    flask_smorest.Api(app)
    assert private.is_of_smorest(private.error_handlers_of(app).get(HTTPException))


@leans(
    "SQLAlchemy compiles savepoints of other elements: a savepoint would count as something that "
    "the code has set."
)
def test_the_statements_of_savepoints_are_known() -> None:
    engine, known = create_engine("sqlite://"), []

    @event.listens_for(engine, "after_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        known.append((statement.split()[0], private.is_savepoint(context)))

    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        connection.begin_nested().commit()
        connection.begin_nested().rollback()
        connection.exec_driver_sql("SELECT 1")
    engine.dispose()
    kinds = [True] * 4
    assert known == [
        ("SELECT", False),
        *zip(("SAVEPOINT", "RELEASE", "SAVEPOINT", "ROLLBACK"), kinds, strict=True),
        ("SELECT", False),
    ]


@pytest.mark.parametrize(
    ("mode", "begun"),
    [("rollback_only", False), ("create_savepoint", False), ("control_fully", True), (None, True)],
)
@leans("SQLAlchemy keeps the connections of a transaction elsewhere: guards would roll back those of tests.")
def test_whose_transaction_a_session_is_in_is_known(mode: Any, begun: bool) -> None:
    """*mode*: how the session joins the transaction of a test; None: there is none to join."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        if mode is not None:
            connection.begin()
        with Session(connection, join_transaction_mode=mode or "conditional_savepoint") as session:
            assert not private.has_begun(session, connection)
            session.execute(text("SELECT 1"))
            assert private.has_begun(session, connection) == begun
            session.begin_nested()
            assert private.has_begun(session, connection) == begun
    engine.dispose()


@pytest.mark.parametrize("what", ["after_begin", "begin", "checkout"])
@leans(
    "SQLAlchemy keeps its listeners elsewhere: what they read before the fence would "
    "be older than its wait, and nothing would say so."
)
def test_what_hears_that_a_transaction_begins_is_known(what: str) -> None:
    engine = create_engine("sqlite://")
    session = Session(engine)

    def listener(*args: Any) -> None: ...

    assert listener not in private.listeners_at_begin(session, engine)
    event.listen(session if what == "after_begin" else engine, what, listener)
    assert listener in private.listeners_at_begin(session, engine)
    session.close()
    engine.dispose()


@leans("SQLAlchemy keeps its listeners elsewhere: COMMIT would be sent in front of what they execute.")
def test_the_last_that_hears_of_a_commit_is_known() -> None:
    heard: list[str] = []

    def first(connection: Any) -> None:
        heard.append("first")

    def last(connection: Any) -> None:
        heard.append("last")

    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        assert not private.is_last_at_commit(connection, last)
        event.listen(engine, "commit", first)
        event.listen(engine, "commit", last)
        event.listen(connection, "commit", lambda connection: heard.append("of the connection"))
        assert private.is_last_at_commit(connection, last)
        assert not private.is_last_at_commit(connection, first)
        connection.begin().commit()
        assert heard == ["of the connection", "first", "last"]
    engine.dispose()


@leans("RedisCache of cachelib/redis.py: LOCATION can't be 'cache:default' any more")
def test_a_cache_of_flask_caching_has_the_client_that_writes() -> None:
    app = Flask(__name__)
    app.config["CACHE_TYPE"] = "RedisCache"
    (cache,) = (Cache(app), *app.extensions["cache"].values())[1:]
    assert isinstance(private.redis_that_writes(cache), redis.Redis)


def test_no_other_file_uses_what_is_private() -> None:
    names = (
        "view_functions",
        "before_request_funcs",
        "error_handler_spec",
        "url_value_preprocessors",
        "provide_automatic_options",
        "http_method_funcs",
        "_converters",
        "to_python",
        r"as_view\.__func__",
        r"\.dispatch\.",
        "__visit_name__",
        r"\._connections\b",
        "__code__",
        "co_flags",
        "_write_client",
        "__closure__",
    )
    package = Path(flask_distlock.__file__).parent
    private_names = re.compile("|".join(names))
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text().splitlines()
        # What messages tell a user is no use.
        if private_names.search(re.sub(r'f?"[^"]*"', "", line)) and path.name != "private.py"
    ]
    assert not found, f"Use a function of flask_distlock/private.py: {found}"
