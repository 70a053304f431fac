"""The arrangements in Flask. Before every view a hook reads what the view is about to read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, after_this_request, g, request
from flask.views import MethodView
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Session

from tests.transactions.arrangement import SELLS, Table
from tests.transactions.till import DECIDING_TAKES, Book

Guard = Callable[..., Any]

FLASK = Table()
BOOK = Book()

db = SQLAlchemy()

LEFT = r"returned with uncommitted changes in db\.session"
CHANGED = r"changes that are not committed.* Call db\.session\.commit"


class Product(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    stock = db.Column(db.Integer, nullable=False)


class Customer(db.Model):
    id = db.Column(db.Integer, primary_key=True)


class Sale(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    product = db.Column(db.Integer, nullable=False)


def sell(id: int, session: Any = db.session) -> bool:
    """Sell a piece of *id* if there is one, in *session*, which somebody else commits."""
    product = session.get(Product, id)
    if product.stock < 1:
        return False
    time.sleep(DECIDING_TAKES)
    product.stock = product.stock - 1
    session.add(Sale(product=id))
    return True


def answer(sold: bool) -> Any:
    return ("sold", 200) if sold else ("sold out", 409)


def make_buy() -> Callable[[int], Any]:
    """A view of its own for each app: guards look for other uses of the function that they stand on."""

    def buy(id: int) -> Any:
        with BOOK.selling():
            sold = sell(id)
            db.session.commit()
            return answer(sold)

    return buy


def loads_the_product() -> None:
    g.product = db.session.get(Product, 1)


def loads_the_user() -> None:
    g.customer = db.session.get(Customer, 1)


def route(app: Flask, view: Any) -> None:
    app.add_url_rule("/product/<int:id>/buy", "buy", view, methods=["POST"])


@FLASK.add("the view commits", plain=SELLS)
def the_view_commits(app: Flask, guard: Guard) -> None:
    route(app, guard(make_buy()))


@FLASK.add("the view commits; a rule", plain=SELLS, rule=True)
def by_a_rule(app: Flask, guard: Guard) -> None:
    route(app, guard(make_buy()))


@FLASK.add("the view commits; a `MethodView`", plain=SELLS)
def method_view(app: Flask, guard: Guard) -> None:
    class Buy(MethodView):
        decorators = [guard]

        def post(self, id: int) -> Any:
            return make_buy()(id)

    route(app, Buy.as_view("buy"))


@FLASK.add("the view commits; async", plain=SELLS, batch=None)
def async_view(app: Flask, guard: Guard) -> None:
    async def view(id: int) -> Any:
        return make_buy()(id)

    route(app, guard(view))


@FLASK.add("the view raises after it has written", plain=SELLS, trouble=True)
def raises(app: Flask, guard: Guard) -> None:
    def view(id: int) -> Any:
        if "trouble" in request.args:
            with BOOK.selling():
                sell(id)
                db.session.flush()
                raise ZeroDivisionError
        return make_buy()(id)

    route(app, guard(view))


@FLASK.add("the view commits; a streamed response", plain=SELLS, batch="return it whole")
def streaming(app: Flask, guard: Guard) -> None:
    def view(id: int) -> Response:
        content, status = make_buy()(id)
        return Response(iter([content]), status)

    route(app, guard(view))


@FLASK.add("a `before_request` hook has read another row, such as the user's", plain=SELLS)
def the_user_is_loaded_before(app: Flask, guard: Guard) -> None:
    app.before_request(loads_the_user)
    route(app, guard(make_buy()))


@FLASK.add("a `before_request` hook has loaded the row itself")
def the_row_is_loaded_before(app: Flask, guard: Guard) -> None:
    app.before_request(loads_the_product)
    route(app, guard(make_buy()))


@FLASK.add(
    "a `before_request` hook has changed something",
    plain=SELLS,
    lock=CHANGED,
    fence=CHANGED,
)
def something_is_changed_before(app: Flask, guard: Guard) -> None:
    app.before_request(lambda: db.session.add(Customer()))
    route(app, guard(make_buy()))


def leave_the_commit(app: Flask, guard: Guard) -> None:
    """The view sells, and does not commit."""

    def view(id: int) -> Any:
        with BOOK.selling():
            return answer(sell(id))

    route(app, guard(view))


@FLASK.add("an `after_request` hook commits", batch=LEFT)
def after_request_commits(app: Flask, guard: Guard) -> None:
    @app.after_request
    def commit(response: Response) -> Response:
        db.session.commit()
        return response

    leave_the_commit(app, guard)


@FLASK.add("`after_this_request` commits", batch=LEFT)
def after_this_request_commits(app: Flask, guard: Guard) -> None:
    def view(id: int) -> Any:
        @after_this_request
        def commit(response: Response) -> Response:
            db.session.commit()
            return response

        with BOOK.selling():
            return answer(sell(id))

    route(app, guard(view))


@FLASK.add("`teardown_request` commits", batch=LEFT)
def teardown_commits(app: Flask, guard: Guard) -> None:
    app.teardown_request(lambda error: db.session.commit())
    leave_the_commit(app, guard)


@FLASK.add("a `Session` of SQLAlchemy's own, begun and committed in the view", plain=SELLS, fence=None)
def a_session_of_its_own(app: Flask, guard: Guard) -> None:
    def view(id: int) -> Any:
        with BOOK.selling(), Session(db.engine) as session:
            sold = sell(id, session)
            session.commit()
            return answer(sold)

    route(app, guard(view))


def block(app: Flask, lock: Guard, commit_inside: bool) -> None:
    """A view that takes the lock by itself."""

    def view(id: int) -> Any:
        with lock(f"product_{id}"), BOOK.selling():
            sold = sell(id)
            if commit_inside:
                db.session.commit()
        db.session.commit()
        return answer(sold)

    route(app, view)


@FLASK.add("`with locks.lock(…)`, and a commit inside the block", plain=SELLS, fence=None, block=True)
def a_block_commits(app: Flask, lock: Guard) -> None:
    block(app, lock, commit_inside=True)


@FLASK.add("`with locks.lock(…)`, and a commit after the block", fence=None, block=True)
def a_commit_after_the_block(app: Flask, lock: Guard) -> None:
    block(app, lock, commit_inside=False)


@FLASK.add("`with locks.lock(…)`, and an `after_request` hook commits", fence=None, block=True)
def a_hook_commits_after_the_block(app: Flask, lock: Guard) -> None:
    @app.after_request
    def commit(response: Response) -> Response:
        db.session.commit()
        return response

    def view(id: int) -> Any:
        with lock(f"product_{id}"), BOOK.selling():
            return answer(sell(id))

    route(app, view)


@FLASK.add("`with locks.lock(…)`, and the row was loaded before", fence=None, block=True)
def the_row_is_read_before_the_block(app: Flask, lock: Guard) -> None:
    app.before_request(loads_the_product)
    block(app, lock, commit_inside=True)


@FLASK.add(
    "`with locks.lock(…)`, and something was changed before",
    plain=None,
    lock=CHANGED,
    fence=None,
    block=True,
)
def something_is_changed_before_the_block(app: Flask, lock: Guard) -> None:
    app.before_request(lambda: db.session.add(Customer()))
    block(app, lock, commit_inside=True)
