"""Every guard and rule that a page shows, or an error says to write, is tried with every method."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django import forms
from django.core.checks import run_checks
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_http_methods, require_POST
from django.views.generic import FormView
from flask import Flask
from flask import request as flask_request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

import flask_distlock
from distlock.errors import ConfigurationError
from distlock.web.rules import read_rules
from django_distlock import distributed_lock, locks
from tests.docs.blocks import Block, blocks

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BUY", "PROPFIND")

#: What has sold since the test began, by method.
sold: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sold() -> None:
    sold.clear()


def sell(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    sold.append(request.method)
    return HttpResponse("sold")


def handler(view: View, request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    return sell(request)


def show_or_sell(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("form") if request.method == "GET" else sell(request)


class Buy(FormView):
    """Django's ``put()`` calls ``post()``."""

    http_method_names = [*View.http_method_names, "buy"]
    form_class = forms.Form

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("form")

    def form_valid(self, form: Any) -> HttpResponse:
        return sell(self.request)

    buy = head = options = delete = handler


class BuyByGet(Buy):
    get = handler


class OnlyShown(View):
    get = handler


class Cart(ViewSet):
    def buy(self, request: Any, id: int) -> Response:
        return Response(sell(request).status_code)

    show = buy


def never_sells(client: Client) -> None:
    with locks.lock("product_1"):
        for method in METHODS:
            client.generic(method, "/product/1")
        assert sold == []
    for method in METHODS:
        client.generic(method, "/product/1")
    assert sold


def again(cls: Any) -> Any:
    """Return a class like *cls*, to be decorated."""
    return type(cls.__name__, (cls,), {"__module__": __name__})


# The pages -------------------------------------------------------------------------------------------------


def decorated() -> Iterator[tuple[str, ast.AST]]:
    """Yield what stands below a guard in a block of a page, with its place."""
    for block in python():
        for node in ast.walk(ast.parse(block.text)):
            above = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("distributed_lock(" in one for one in above):
                yield f"{block} {node.name}", node  # type: ignore[attr-defined]


def python() -> Iterator[Block]:
    for block in blocks():
        if block.language.startswith("python") and re.search("distributed_lock|DISTLOCK_RULES", block.text):
            yield block


def words_of(call: ast.Call, *wanted: str) -> dict[str, Any]:
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg in wanted}


def as_on_the_page(node: Any) -> tuple[str, Any] | None:
    """Return a selling view with the decorators of *node* that have to do with methods; None for readers."""
    view: Any = (
        type("Buy", (Buy,), {"__module__": __name__}) if isinstance(node, ast.ClassDef) else show_or_sell
    )
    face = "django"
    for decorator in reversed(node.decorator_list):
        written = ast.unparse(decorator)
        if "distributed_lock(" in written:
            call = next(
                one
                for one in ast.walk(decorator)
                if isinstance(one, ast.Call) and "lock" in ast.unparse(one.func)
            )
            words = words_of(call, "methods", "mode", "limit")
            if words.get("mode") == "shared" or "limit" in words:
                return None
            guard = distributed_lock("product_<id>", timeout=0, **words)
            whole = "method_decorator" not in written
            view = guard(view) if whole else method_decorator(guard, **words_of(decorator, "name"))(view)
        elif written == "require_POST":
            view = require_POST(view)
        elif written.startswith("require_http_methods"):
            view = require_http_methods(ast.literal_eval(decorator.args[0]))(view)
        elif re.match(r"\w+\.(route|get|post|put|delete)\(", written):
            face = written
    return face, view.as_view() if isinstance(node, ast.ClassDef) else view


SHOWN = {
    place: (face, view)
    for place, node in decorated()
    if (shown := as_on_the_page(node)) is not None
    for face, view in [shown]
}


def test_the_pages_have_guards() -> None:
    assert len(SHOWN) > 20


@pytest.mark.parametrize(("face", "view"), SHOWN.values(), ids=SHOWN)
def test_a_guard_of_a_page_leaves_no_method_open(serve: Callable[..., Client], face: str, view: Any) -> None:
    if face != "django":
        assert "methods=" not in face or "methods=['POST']" in face, "try this route in Flask as well"
    never_sells(serve(view))


def ruled() -> Iterator[tuple[str, dict[str, Any]]]:
    for block in python():
        for node in ast.walk(ast.parse(block.text)):
            if not isinstance(node, ast.Dict) or {"route", "lock"} - {
                ast.literal_eval(key) for key in node.keys if key
            }:
                continue
            # A function of the page, as a lock or as "when", has nothing to do with methods.
            given = [
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None and not isinstance(value, ast.Name | ast.Lambda)
            ]
            rule = {ast.literal_eval(key): ast.literal_eval(value) for key, value in given}
            if rule.get("mode") != "shared":
                yield f"{block} {rule['route']}", rule


RULED = dict(ruled())


@pytest.mark.parametrize("rule", RULED.values(), ids=RULED)
def test_a_rule_of_a_page_leaves_no_method_open(rules: Callable[..., Client], rule: dict[str, Any]) -> None:
    methods = rule.get("methods")
    if methods is None:
        own = {"route": "buy", "lock": "product_<id>", "timeout": 0}
        never_sells(rules([path("product/<int:id>", show_or_sell, name="buy")], own))
        return
    # Flask's routes have the methods.
    app = Flask(__name__)
    own = {"route": "buy", "lock": "product_<id>", "timeout": 0, "methods": methods}
    app.config.from_mapping(DISTLOCK="memory://recommended", TESTING=True, DISTLOCK_RULES=[own])
    flask = flask_distlock.DistLock(app)
    app.add_url_rule("/product/<int:id>", "buy", lambda id: sell(flask_request).content, methods=methods)
    with app.app_context(), flask.lock("product_1"):
        for method in METHODS:
            app.test_client().open("/product/1", method=method)
        assert sold == []
    with app.app_context():
        flask.close()


# The errors ------------------------------------------------------------------------------------------------


def guard_in(text: str) -> Any:
    """Return the guard that *text* says to write."""
    start = text.index("@distributed_lock(") + 1
    depth = 0
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0 and text[end] == ")":
            return eval(text[start : end + 1], {"distributed_lock": distributed_lock})
    raise AssertionError(text)


def rule_in(text: str) -> dict[str, Any]:
    """Return the rule that *text* says to write, for the route ``buy``."""
    written = text[text.index("[{") : text.index("}]") + 2].replace("…", '"product_<id>"')
    (rule,) = eval(written)
    return {**rule, "route": "buy", "lock": "product_<id>", "timeout": 0}


def found(which: str) -> str:
    return next(message.msg for message in run_checks() if message.id == which)


lock = distributed_lock("product_<id>", timeout=0)


def on(name: str, cls: Any, guard: Any = lock) -> Any:
    return method_decorator(guard, name=name)(again(cls))


@pytest.mark.parametrize(("name", "cls"), [("post", Buy), ("get", BuyByGet), ("put", Buy)])
def test_instead_of_one_method_in_a_transaction(
    serve: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cls: Any,
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    serve(on(name, cls).as_view())
    guard = guard_in(found("distlock.E011"))
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", False)
    never_sells(serve(guard(again(cls)).as_view()))


@pytest.mark.parametrize("method", ["post", "get"])
def test_instead_of_an_action(
    serve: Callable[..., Client],
    rules: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    actions = {"post": "buy", method: "buy", "head": "buy", "put": "buy"}
    serve([path("product/<int:id>", on("buy", Cart).as_view(actions), name="buy")])
    rule = rule_in(found("distlock.E011"))
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", False)
    never_sells(rules([path("product/<int:id>", Cart.as_view(actions), name="buy")], rule))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_instead_of_a_guard_inside_a_transaction(
    serve: Callable[..., Client], rules: Callable[..., Client], method: str
) -> None:
    guarded = [lock(sell_by(id=1))]

    def opening(request: HttpRequest, id: int) -> HttpResponse:
        with transaction.atomic():
            return guarded[0](request, id=id)

    client = serve([path("product/<int:id>", opening, name="buy")])
    with pytest.raises(ConfigurationError) as refused:
        client.generic(method, "/product/1")
    rule = rule_in(str(refused.value))
    never_sells(rules([path("product/<int:id>", sell_by(id=1), name="buy")], rule))


def sell_by(id: int) -> Callable[..., HttpResponse]:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return sell(request)

    return view


@pytest.mark.parametrize(
    ("cls", "methods"),
    [(Buy, ["TRACE"]), (OnlyShown, None), (OnlyShown, ["POST"])],
    ids=["TRACE", "usual", "POST"],
)
def test_instead_of_methods_that_are_not_answered(
    serve: Callable[..., Client], cls: Any, methods: list[str] | None
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        distributed_lock("product_<id>", timeout=0, methods=methods)(again(cls)).as_view()
    never_sells(serve(guard_in(str(refused.value))(again(cls)).as_view()))


def test_instead_of_methods_that_a_route_does_not_take(rules: Callable[..., Client]) -> None:
    view = path("product/<int:id>", OnlyShown.as_view(), name="buy")
    rule = {"route": "buy", "lock": "product_<id>", "timeout": 0}
    with pytest.raises(ConfigurationError) as refused:
        rules([view], rule).get("/product/1")
    written = re.search(r'"methods": (\[.*?\])', str(refused.value))
    assert written is not None
    never_sells(rules([view], {**rule, "methods": ast.literal_eval(written[1])}))


def test_the_example_of_a_wrong_setting(rules: Callable[..., Client]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_rules("product")
    never_sells(rules([path("product/<int:id>", show_or_sell, name="buy")], rule_in(str(refused.value))))


def test_what_the_check_of_open_methods_says(serve: Callable[..., Client]) -> None:
    guarded = distributed_lock("product_<id>", timeout=0, methods=["POST"])(show_or_sell)
    serve(guarded)
    written = re.search(r"@(require_http_methods\(.*?\)) above", found("distlock.W009"))
    assert written is not None
    never_sells(serve(eval(written[1])(guarded)))


@pytest.mark.parametrize("name", ["post", "get"])
def test_what_the_check_of_early_code_says(serve: Callable[..., Client], name: str) -> None:
    class Early(BuyByGet):
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    serve(on(name, Early).as_view())
    never_sells(serve(guard_in(found("distlock.W011"))(again(BuyByGet if name == "get" else Buy)).as_view()))
