"""Subclasses of guarded views: an overridden method is locked, replaced ``decorators`` are refused."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from flask import Flask
from flask.views import MethodView, View

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock


class Locked(MethodView):
    @distributed_lock("product_<id>", timeout=0)
    def post(self, id: int) -> str:
        return "sold"


def test_a_method_that_calls_or_repeats_the_lock_of_its_base_is_served(app: Flask, locks: DistLock) -> None:
    class Calls(Locked):
        def post(self, id: int) -> str:
            return super().post(id=id)

        def put(self, id: int) -> str:
            return self.post(id)

    class Repeats(Locked):
        @distributed_lock("product_<id>", timeout=0)
        def post(self, id: int) -> str:
            return "sold"

    @distributed_lock("product_<id>", timeout=0)
    class Whole(Locked):
        def post(self, id: int) -> str:
            return "sold"

    for view in (Calls, Repeats, Whole):
        app.add_url_rule(f"/{view.__name__}/<int:id>", view_func=view.as_view(view.__name__))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        statuses = [client.post(f"/{name}/1").status_code for name in ("Calls", "Repeats", "Whole")]
    assert statuses == [423, 423, 423]


def login(view: Any) -> Any:
    return functools.wraps(view)(lambda **arguments: view(**arguments))


class Guarded(MethodView):
    init_every_request = False
    decorators = [distributed_lock("product_<id>", timeout=0)]

    def post(self, id: int) -> str:
        return "sold"


class Mixin:
    decorators = [login]


class Replaces(Guarded):
    decorators = [login]


class Empties(Guarded):
    decorators = []


class Inherits(Replaces):
    pass


class Mixes(Mixin, Guarded):
    pass


class Dispatches(Replaces):
    def dispatch_request(self, **arguments: Any) -> Any:
        return super().dispatch_request(**arguments)


class OtherMethod(Guarded):
    decorators = [distributed_lock("product_<id>", timeout=0, methods=["PUT"])]

    def put(self, id: int) -> str:
        return "put"


@pytest.mark.parametrize("cls", [Replaces, Empties, Inherits, Mixes, Dispatches, OtherMethod])
def test_decorators_that_replace_those_of_a_guarded_base_are_refused(app: Flask, cls: type[Guarded]) -> None:
    app.add_url_rule("/<int:id>", view_func=cls.as_view("view"))
    line = r"write decorators = \[\*Guarded\.decorators, …\], or @distributed_lock\(.* above"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=rf"{cls.__name__} has decorators of its own .* {line}"):
            app.test_client().post("/1")


def test_decorators_that_come_after_as_view_are_refused(app: Flask) -> None:
    class Late(MethodView):
        def post(self, id: int) -> str:
            return "sold"

    app.add_url_rule("/<int:id>", view_func=Late.as_view("view"))
    Late.decorators = [distributed_lock("product_<id>")]
    with pytest.raises(ConfigurationError, match=r"Late were changed after its as_view\(\)"):
        app.test_client().post("/1")


def test_decorators_that_lock_as_those_of_the_base_are_served(app: Flask, locks: DistLock) -> None:
    class Merges(Guarded):
        decorators = [*Guarded.decorators, login]

    class Repeats(Guarded):
        decorators = [distributed_lock("product_<id>", timeout=0), login]

    @distributed_lock("product_<id>", timeout=0)
    class Above(Guarded):
        decorators = [login]

    class Itself(Guarded):
        decorators = [login]

        @distributed_lock("product_<id>", timeout=0)
        def post(self, id: int) -> str:
            return "sold"

    class Reads(Guarded):
        methods = ["GET"]
        decorators = [login]

        def get(self, id: int) -> str:
            return "read"

    views = (Merges, Repeats, Above, Itself)
    for view in (*views, Reads):
        app.add_url_rule(f"/{view.__name__}/<int:id>", view_func=view.as_view(view.__name__))
    app.add_url_rule("/ruled/<int:id>", view_func=Replaces.as_view("ruled"))
    app.config["DISTLOCK_RULES"] = [{"route": "ruled", "lock": "product_<id>", "timeout": 0}]
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        paths = [*(view.__name__ for view in views), "ruled"]
        assert [client.post(f"/{path}/1").status_code for path in paths] == [423] * 5
        assert client.get("/Reads/1").text == "read"


def sell(self: Any, id: int) -> str:
    return "sold"


def without_wraps(function: Any) -> Any:
    return lambda *args, **kwargs: function(*args, **kwargs)


class SellMixin:
    post = sell


class CallsAnother(Locked):
    def render(self) -> str:
        return "sold"

    def post(self, id: int) -> str:
        return super().__str__() + self.render()


class CallsPastIt(Locked):
    def post(self, id: int) -> str:
        return super(Locked, self).post(id)  # type: ignore[misc]


class Between(Locked):
    def post(self, id: int) -> str:
        return "sold"


class CallsBetween(Between):
    def post(self, id: int) -> str:
        return super().post(id)


class LockedDispatch(View):
    @distributed_lock("product_<id>", timeout=0, methods=["POST"])
    def dispatch_request(self, id: int) -> str:
        return "sold"


UNSEEN = {
    "function of another name": lambda: type("Sub", (Locked,), {"post": sell}),
    "lambda": lambda: type("Sub", (Locked,), {"post": lambda self, id: "sold"}),
    "decorator without wraps": lambda: type("Sub", (Locked,), {"post": without_wraps(sell)}),
    "mixin": lambda: type("Sub", (SellMixin, Locked), {}),
    "partialmethod": lambda: type("Sub", (Locked,), {"post": functools.partialmethod(sell)}),
    "super of another method": lambda: CallsAnother,
    "super past the guard": lambda: CallsPastIt,
    "super of one that does not call it": lambda: CallsBetween,
    "dispatch_request": lambda: type("Sub", (LockedDispatch,), {"dispatch_request": sell}),
}


@pytest.mark.parametrize("make", UNSEEN.values(), ids=UNSEEN)
def test_an_override_that_does_not_call_what_is_locked_is_locked_however_it_is_written(
    app: Flask, locks: DistLock, make: Any
) -> None:
    app.add_url_rule("/<int:id>", view_func=make().as_view("sub"), methods=["POST"])
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/1").status_code == 423


class OwnSuper(Locked):
    def post(self, id: int) -> str:
        return super(OwnSuper, self).post(id)  # noqa: UP008


class LaterSuper(Locked):
    def post(self, id: int) -> str:
        parent = super()
        return (lambda: parent.post(id))()


class ByName(Locked):
    def post(self, id: int) -> str:
        return Locked.post(self, id)


class ByText(Locked):
    def post(self, id: int) -> str:
        return str(getattr(super(), "post")(id))  # noqa: B009


def namesake() -> Any:
    class Locked(Calls):
        def post(self, id: int) -> str:
            return super(Locked, self).post(id)  # noqa: UP008

    return Locked


class Calls(Locked):
    def post(self, id: int) -> str:
        return super().post(id)


class Logged(Locked):
    @without_wraps
    def post(self, id: int) -> str:
        return super().post(id)


CALLING = {
    "own": lambda: OwnSuper,
    "later": lambda: LaterSuper,
    "by name": lambda: ByName,
    "by text": lambda: ByText,
    "namesake": namesake,
    "decorator without wraps": lambda: Logged,
    "twice": lambda: type("Sub", (Calls,), {"put": sell}),
}


@pytest.mark.parametrize("make", CALLING.values(), ids=CALLING)
def test_an_override_that_calls_the_guarded_method_is_served_however_it_is_written(
    app: Flask, locks: DistLock, make: Any
) -> None:
    app.add_url_rule("/<int:id>", view_func=make().as_view("sub"), methods=["POST"])
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/1").status_code == 423
