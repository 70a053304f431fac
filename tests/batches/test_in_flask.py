"""A batch in Flask: the sessions of the requests take part in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import pytest
from flask import request
from sqlalchemy import Engine, create_engine, text

from distlock import ConfigurationError, current_grant
from tests.batches.django_line import Answer
from tests.batches.flask_line import UNCOMMITTED, FlaskLine
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import FlaskShop, open_shop

SOLD = Answer(200)
FAILED = Answer(500)
ROLLED_BACK = Answer(503, "lock_batch_failed")


@pytest.fixture
def line(engine: Engine, using: str, unhurried: None) -> Iterator[FlaskLine]:
    with open_shop("flask", engine, using, {}) as shop:
        assert isinstance(shop, FlaskShop)
        yield FlaskLine(shop, engine)


def test_those_that_stand_in_line_share_one_commit_and_one_fence(line: FlaskLine) -> None:
    fences: list[object] = []
    line.serve(dict.fromkeys("abc", lambda: fences.append(current_grant().fence)))
    with line.counted_commits() as commits:
        answers = line.answers("a", "b", "c")
    assert answers == dict.fromkeys("abc", SOLD)
    assert line.done == ["a", "b", "c"]
    assert (len(commits), len(set(fences)), line.left()) == (1, 1, STOCK - 3)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_view_that_raises_is_rolled_back_alone(line: FlaskLine, name: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    line.serve({name: fail})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD) | {name: FAILED}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_what_a_view_has_rolled_back_is_its_own(line: FlaskLine) -> None:
    line.serve({"b": line.shop.db.session.rollback})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    assert line.left() == STOCK - 2


@on("postgresql")
def test_a_view_may_commit_often_and_have_another_session(line: FlaskLine) -> None:
    session = line.shop.db.session

    def work() -> None:
        session.commit()
        session.remove()
        line.shop.write(line.shop.read() - 1)
        with session.begin_nested():
            line.shop.write(line.shop.read() - 1)

    line.serve({"b": work})
    with line.counted_commits() as commits:
        assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    assert (len(commits), line.left()) == (1, STOCK - 5)


@on("postgresql")
def test_changes_that_nobody_commits_are_refused(line: FlaskLine) -> None:
    def leave() -> object:
        line.shop.db.session.commit()
        line.shop.write(0)
        return UNCOMMITTED

    line.serve({"b": leave})
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_another_database_is_refused(line: FlaskLine) -> None:
    other = create_engine("sqlite://")

    def ask() -> None:
        line.shop.db.session.execute(text("SELECT 1"), bind_arguments={"bind": other})

    line.serve({"b": ask})
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2
    other.dispose()


@on("postgresql")
def test_a_deferred_constraint_fails_its_own_request(line: FlaskLine) -> None:
    line.execute(
        "DROP TABLE IF EXISTS bought, customer",
        "CREATE TABLE customer (id int PRIMARY KEY)",
        "CREATE TABLE bought (customer int REFERENCES customer DEFERRABLE INITIALLY DEFERRED)",
    )
    line.serve({"b": lambda: line.shop.execute("INSERT INTO bought VALUES (7)")})
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@pytest.mark.parametrize("name", ["a", "b"])
@on("postgresql", "mariadb")
def test_a_view_that_closes_the_connection_fails_all(line: FlaskLine, name: str) -> None:
    line.serve({name: lambda: line.shop.db.session.connection().close()})
    answers = line.answers("a", "b", "c")
    assert answers.pop(name).status == 500
    # What comes after it stands in line anew.
    after = {"a": {"b", "c"}, "b": {"c"}}[name]
    assert answers == {other: SOLD if other in after else ROLLED_BACK for other in answers}
    assert line.left() == STOCK - len(after)


@on("postgresql", "mariadb")
def test_after_a_commit_in_so_many_words_the_outcome_is_unknown(line: FlaskLine) -> None:
    line.serve({"b": lambda: line.shop.execute("COMMIT")})
    unknown = Answer(500, "lock_outcome_unknown")
    assert line.answers("a", "b", "c") == {"a": unknown, "b": unknown, "c": SOLD}


@on("postgresql")
def test_a_broken_connection_fails_all(line: FlaskLine) -> None:
    def cut() -> None:
        pid = line.shop.db.session.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with line.engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
        line.shop.read()

    line.serve({"b": cut})
    assert line.answers("a", "b", "c") == {"a": ROLLED_BACK, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 1


@on("postgresql")
def test_a_lock_that_is_lost_fails_all(line: FlaskLine) -> None:
    line.serve({"b": line.shop.lost})
    lost = Answer(503, "lock_lost")
    assert line.answers("a", "b", "c") | {"c": lost} == dict.fromkeys("abc", lost)


def test_a_batch_is_refused_without_a_fence(line: FlaskLine) -> None:
    line.serve({}, fence=False)
    line.shop.app.testing = True
    with pytest.raises(ConfigurationError, match="write fence=True beside it"):
        line.shop.app.test_client().post("/product/1")


@pytest.mark.parametrize("length", [1000, 1001])
def test_a_body_that_is_too_large_for_a_batch_is_refused(line: FlaskLine, length: int) -> None:
    line.shop.app.config["DISTLOCK_BATCH_MAX_BODY"] = 1000
    line.serve({"large": lambda: line.done.append(str(len(request.get_data())))})
    client = line.shop.app.test_client()
    known = client.post("/product/1?large", data=b"p" * length)
    # As a chunked body comes: the server marks its end, and nothing tells its length.
    chunked = client.post(
        "/product/1?large", input_stream=BytesIO(b"p" * length), environ_base={"wsgi.input_terminated": True}
    )
    fits = length == 1000
    assert [known.status_code, chunked.status_code] == [200 if fits else 413] * 2
    assert line.done == ["large", "1000"] * 2 * fits
    assert fits or known.get_json()["code"] == "lock_body_too_large"
