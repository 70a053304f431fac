"""One ``db`` of a module with many apps, and one session of a test and the view, as test suites have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

from distlock.errors import ConfigurationError
from flask_distlock import distributed_lock
from flask_distlock.sql.sessions import Sessions
from tests.flask_distlock.sql.session_shop import Shop


def test_a_transaction_is_followed_for_its_own_app_and_not_once_for_each_that_was_made(
    make_app: Callable[..., Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = SQLAlchemy()
    told: list[Sessions] = []
    for name in ("after_begin", "_after_begin"):
        if (before := getattr(Sessions, name, None)) is not None:

            def count(self: Sessions, *args: object, before: Callable[..., None] = before) -> None:
                told.append(self)
                before(self, *args)

            monkeypatch.setattr(Sessions, name, count)
    apps = []
    for number in range(5):
        app = make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/{number}.db")
        db.init_app(app)

        @app.post("/")
        @distributed_lock("product_1")
        def view() -> str:
            db.session.execute(text("CREATE TABLE product (id INTEGER)"))
            db.session.execute(text("INSERT INTO product VALUES (1)"))
            db.session.commit()
            return "sold"

        apps.append(app)
    for app in apps:
        with app.app_context():
            db.session.execute(text("SELECT 1"))
    told.clear()
    for app in apps:
        assert app.test_client().post("/").text == "sold"
    # In the order of the apps: one transaction each.
    assert told == [app.extensions["distlock"].sessions for app in apps]
    for app in apps:
        with app.app_context():
            db.engine.dispose()


@pytest.mark.parametrize("flushed", [False, True])
def test_data_that_a_test_shares_with_the_view_is_committed_first(shop: Shop, flushed: bool) -> None:
    """docs/reference/flask.md: an app context around the test client's request has one session for both."""
    shop.serve(lambda: (shop.sell(), shop.db.session.commit(), "sold")[-1])
    with shop.app.app_context():
        shop.product().stock = 5
        if flushed:
            shop.db.session.flush()
        with pytest.raises(ConfigurationError, match=r"Call db\.session\.commit\(\)"):
            shop.post()
        shop.product().stock = 5
        shop.db.session.commit()
        assert shop.post().status_code == 200
    assert shop.stock() == 4


def test_a_session_is_known_only_when_it_is_followed(
    make_app: Callable[..., Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that came in between would run its view without a guard's care for the session."""
    app, db = make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), SQLAlchemy()
    db.init_app(app)
    known: list[Sessions | None] = []
    follow = Sessions.follow

    def look(self: Sessions, *args: Any) -> None:
        known.append(app.extensions["distlock"].sessions)
        follow(self, *args)

    monkeypatch.setattr(Sessions, "follow", look)
    with app.app_context():
        pass
    assert known == [None]
    assert app.extensions["distlock"].sessions is not None
