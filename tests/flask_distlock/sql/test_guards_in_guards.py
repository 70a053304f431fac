from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from tests.flask_distlock.sql.session_shop import Shop


def test_a_guard_inside_one_on_the_same_name_leaves_the_commit_to_it(shop: Shop) -> None:
    def reduce() -> None:
        shop.product().stock -= 1

    inner = distributed_lock("product_1", timeout=0)(reduce)

    def view() -> str:
        inner()
        shop.db.session.commit()
        return "sold"

    shop.serve(view)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+"], 9)


def test_a_new_name_in_the_transaction_of_an_outer_guard_is_refused(shop: Shop) -> None:
    inner = distributed_lock("product_2")(lambda: pytest.fail("ran"))

    def view() -> str:
        shop.product()
        inner()
        return "sold"

    shop.serve(view)
    with pytest.raises(ConfigurationError, match=r"the outer one: @distributed_lock\(…, 'product_2'\)"):
        shop.post()


@pytest.mark.parametrize("outer", ["row", "fenced", "plain"])
def test_a_block_in_the_transaction_of_a_guard_leaves_it_alone(
    make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path, outer: str
) -> None:
    """Where the lock is a row, ending the transaction would let it go in the middle of the view."""
    url = f"sqlite:///{tmp_path}/rows.db"
    setting = {
        "row": {"BACKEND": "database"},
        "printer": {"LOCATION": "memory://printer"},
        "default": {"LOCATION": "memory://plain"},
    }
    app = make_app(DISTLOCK=setting, SQLALCHEMY_DATABASE_URI=url)
    db = SQLAlchemy()
    fence_table(db.metadata)
    db.init_app(app)
    words = {"row": {"alias": "row"}, "fenced": {"fence": True}, "plain": {}}[outer]

    @app.post("/")
    @distributed_lock("product_1", **words)
    def view() -> str:
        db.session.execute(text("SELECT 1"))
        begun = db.session().get_transaction()
        refused = pytest.raises(ConfigurationError, match=r"of the guard around it: .*directly below")
        with refused, locks["printer"].lock("printer"):
            pytest.fail("ran")
        assert db.session().get_transaction() is begun
        return "printed"

    with app.app_context():
        db.create_all()
    assert app.test_client().post("/").text == "printed"
    with app.app_context():
        db.engine.dispose()


def test_a_block_before_the_first_query_of_a_guarded_view_is_served(shop: Shop) -> None:
    def view() -> str:
        with shop.locks.lock("printer"):
            pass
        return shop.sell() if shop.db.session.commit() is None else ""

    shop.serve(lambda: (view(), shop.db.session.commit())[0])
    assert shop.post().text == "sold"
