"""What a request does after its block or guard: a rollback, a second commit, a teardown that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flask
import pytest
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session

from distlock.errors import LockLost
from distlock.testing import lose
from flask_distlock import DistLock, distributed_lock, transaction
from flask_distlock.fence import fence_table


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    app: Any = flask.Flask("shop")
    app.config.update(DISTLOCK="memory://", SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path / 'shop.sqlite3'}")
    app.db, app.locks = SQLAlchemy(app), DistLock(app)

    class Row(app.db.Model):
        n = app.db.Column(app.db.Integer, primary_key=True)

    app.Row = Row
    with app.app_context():
        app.db.create_all()
        app.db.session.add(Row(n=1))
        app.db.session.commit()
    return app


def rows(shop: Any) -> list[int]:
    with shop.app_context():
        return sorted(row.n for row in shop.db.session.query(shop.Row))


def test_a_view_that_rolls_back_and_commits_anew_has_committed(shop: Any) -> None:
    @shop.post("/")
    def view() -> str:
        with shop.locks.lock("a"):
            shop.db.session.add(shop.Row(n=2))
            shop.db.session.flush()
        shop.db.session.rollback()
        shop.db.session.add(shop.Row(n=3))
        shop.db.session.commit()
        return "stored"

    assert (shop.test_client().post("/").text, rows(shop)) == ("stored", [1, 3])


def test_so_has_one_whose_first_commit_failed(shop: Any) -> None:
    @shop.post("/")
    def view() -> str:
        with shop.locks.lock("a"):
            shop.db.session.add(shop.Row(n=2))
            shop.db.session.flush()
        shop.db.session.add(shop.Row(n=1))
        with pytest.raises(IntegrityError):
            shop.db.session.commit()
        shop.db.session.rollback()
        shop.db.session.add(shop.Row(n=3))
        shop.db.session.commit()
        return "stored"

    assert (shop.test_client().post("/").text, rows(shop)) == ("stored", [1, 3])


def test_so_has_one_after_a_guarded_function(shop: Any) -> None:
    @distributed_lock("b")
    def helper() -> None:
        shop.db.session.add(shop.Row(n=2))
        shop.db.session.flush()

    @shop.post("/")
    def view() -> str:
        helper()
        shop.db.session.rollback()
        shop.db.session.add(shop.Row(n=3))
        shop.db.session.commit()
        return "stored"

    assert (shop.test_client().post("/").text, rows(shop)) == ("stored", [1, 3])


def test_a_site_that_clears_the_info_of_its_session_commits(shop: Any) -> None:
    @shop.post("/")
    @distributed_lock("x")
    def view() -> str:
        shop.db.session.add(shop.Row(n=2))
        shop.db.session.flush()
        return "stored"

    @shop.after_request
    def commit(response: flask.Response) -> flask.Response:
        shop.db.session.info.clear()
        shop.db.session.commit()
        return response

    assert (shop.test_client().post("/").text, rows(shop)) == ("stored", [1, 2])


def test_a_teardown_that_fails_leaves_no_transaction_open(shop: Any) -> None:
    seen = []

    @shop.post("/")
    @distributed_lock("x")
    def view() -> str:
        shop.db.session.execute(shop.db.select(shop.Row)).all()
        seen.append(shop.db.session())
        return "read"

    @shop.teardown_appcontext
    def broken(_: object) -> None:
        raise ValueError("a teardown of the site fails")

    with pytest.raises(ValueError, match="of the site"):
        shop.test_client().post("/")
    assert not seen[0].in_transaction()


def test_of_two_blocks_on_a_kept_lock_each_reports_its_own_loss(shop: Any) -> None:
    seen = []

    @shop.post("/")
    @distributed_lock("x")
    def view() -> str:
        return "stored"

    @shop.after_request
    def two_blocks(response: flask.Response) -> flask.Response:
        with shop.locks.lock("x") as first, Session(shop.db.engine) as own, transaction(first, own):
            own.add(shop.Row(n=2))
        second = shop.locks.lock("x")
        with pytest.raises(LockLost), second as grant:
            seen.append((first.committed, grant.committed, lose("x")))
        return response

    with shop.app_context():
        fence_table(shop.db.metadata)
        shop.db.create_all()
    assert (shop.test_client().post("/").status_code, rows(shop)) == (200, [1, 2])
    assert seen[0][:2] == (True, False)


def test_a_second_scoped_session_of_one_factory_is_watched_as_well(shop: Any) -> None:
    @shop.post("/")
    @distributed_lock("x")
    def view() -> str:
        shop.db.session.add(shop.Row(n=int(flask.request.args["n"])))
        shop.db.session.commit()
        return "stored"

    @shop.teardown_request
    def commits_without_the_lock(_: object) -> None:
        lose("x")
        shop.db.session.add(shop.Row())
        with pytest.raises(LockLost):
            shop.db.session.commit()

    shop.test_client().post("/?n=2")
    first = shop.db.session
    shop.db.session = scoped_session(first.session_factory, scopefunc=first.registry.scopefunc)
    shop.test_client().post("/?n=3")
    assert rows(shop) == [1, 2, 3]
