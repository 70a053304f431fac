from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request
from flask_login import LoginManager, UserMixin

from distlock import current_grant
from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock


class User(UserMixin):
    def __init__(self, id: int) -> None:
        self.id = id


class UserWithKey(User):
    def __init__(self, id: int) -> None:
        super().__init__(id)
        self.pk = id + 100


def names() -> str:
    return " ".join(current_grant().names)


def add_cart(app: Flask) -> None:
    @app.post("/cart")
    @distributed_lock("cart_<user.pk>")
    def cart() -> str:
        return names()


def use_flask_login(app: Flask, user: User | None) -> None:
    app.secret_key = "tests only"
    LoginManager(app).request_loader(lambda request: user)


@pytest.mark.parametrize(("user", "name"), [(User(7), "cart_7"), (UserWithKey(7), "cart_107")])
def test_the_user_of_flask_login_is_a_name(app: Flask, user: User, name: str) -> None:
    use_flask_login(app, user)
    add_cart(app)
    assert app.test_client().post("/cart").text == name


def test_nobody_is_unauthorized(app: Flask) -> None:
    use_flask_login(app, None)
    add_cart(app)
    assert app.test_client().post("/cart").status_code == 401


@pytest.mark.parametrize(
    ("key", "status", "text"), [(7, 200, "cart_7"), ("ann", 200, "cart_ann"), (None, 401, None)]
)
def test_a_callable_of_the_extension_knows_the_user(key: object, status: int, text: str | None) -> None:
    app = Flask(__name__)
    app.config["DISTLOCK"] = "dummy://"
    DistLock(app, user=lambda: key)
    add_cart(app)
    response = app.test_client().post("/cart")
    assert response.status_code == status
    assert text in {None, response.text}


def test_a_key_that_is_none_says_what_one_is(app: Flask) -> None:
    use_flask_login(app, UserWithKey(7))
    app.extensions["distlock"].user = lambda: object()
    add_cart(app)
    with pytest.raises(ConfigurationError, match="The key of a user has to be an int, a UUID or text"):
        app.test_client().post("/cart")


def test_without_either_it_says_what_to_write(app: Flask) -> None:
    add_cart(app)
    with pytest.raises(ConfigurationError, match=r"Flask-Login.*DistLock\(app, user=\.\.\.\)"):
        app.test_client().post("/cart")


def test_a_function_has_no_request_even_if_a_view_calls_it(app: Flask) -> None:
    @distributed_lock("product_<int:query.id>")
    def reduce(id: int) -> None: ...

    @app.post("/")
    def view() -> str:
        reduce(1)
        return ""

    with pytest.raises(ConfigurationError, match=r"reduce was not called as a view: pass the value"):
        app.test_client().post("/?id=1")


@pytest.mark.parametrize("word", ["form", "data", "json"])
@pytest.mark.parametrize(
    ("template", "sent"), [("p_<int:form.id>", {"data": {"id": 7}}), ("p_<int:json.id>", {"json": {"id": 7}})]
)
def test_a_hook_may_have_read_the_body(app: Flask, word: str, template: str, sent: dict[str, Any]) -> None:
    @app.before_request
    def before() -> None:
        request.get_json(silent=True) if word == "json" else getattr(request, word)

    @app.post("/")
    @distributed_lock(template)
    def view() -> str:
        return names()

    assert app.test_client().post("/", **sent).text == "p_7"
