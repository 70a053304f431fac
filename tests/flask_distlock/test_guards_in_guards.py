from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.session_shop import Shop


@pytest.fixture
def shop(make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path):
    shop = Shop(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), locks)
    yield shop
    shop.close()


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
