"""A view that raises its answer, as ``abort(redirect(...))`` does: a success is one, however it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, abort, make_response, redirect
from werkzeug.exceptions import Conflict

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.sql.session_shop import Shop, after, commit_and_note, held


@pytest.fixture
def shop(make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path):
    shop = Shop(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), locks)
    yield shop
    shop.close()


def raising(shop: Shop, answer: Callable[[], Any], is_async: bool) -> Callable[[], Any]:
    def sell() -> Any:
        shop.sell()
        abort(answer())

    async def asell() -> Any:
        sell()

    return asell if is_async else sell


SUCCESSES = {
    "a response": lambda: make_response("sold"),
    "a redirection": lambda: redirect("/thanks"),
    "a tuple made one": lambda: make_response(("sold", 201)),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", SUCCESSES.values(), ids=SUCCESSES)
def test_a_hook_commits_under_the_lock_what_it_has_changed(
    shop: Shop, answer: Callable[[], Any], is_async: bool
) -> None:
    after(shop, lambda: commit_and_note(shop))
    shop.serve(raising(shop, answer, is_async))
    assert shop.post().status_code < 400
    assert (shop.log, shop.stock()) == (["commit+", "after+"], 9)


def test_where_nobody_commits_it_is_an_error(shop: Shop) -> None:
    shop.serve(raising(shop, lambda: redirect("/thanks"), False))
    with pytest.raises(ConfigurationError, match="returned with uncommitted changes"):
        shop.post()
    assert shop.stock() == 10
    assert not held(shop)


REFUSALS = {
    "a status": lambda: 409,
    "a response": lambda: make_response(("sold out", 409)),
    "an exception": lambda: Conflict().get_response(),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_rolled_back_at_once(shop: Shop, answer: Callable[[], Any]) -> None:
    after(shop, lambda: commit_and_note(shop))
    shop.serve(raising(shop, answer, False))
    assert shop.post().status_code == 409
    assert (shop.log, shop.stock()) == (["after+"], 10)


def test_what_it_raises_comes_to_the_decorators_above_it(shop: Shop) -> None:
    seen: list[int] = []

    @distributed_lock("product_1")
    def sell() -> None:
        shop.sell()
        shop.db.session.commit()
        abort(redirect("/thanks"))

    def view() -> Any:
        try:
            sell()
        except Exception as error:
            seen.append(error.get_response().status_code)  # type: ignore[attr-defined]
            raise

    view.__wrapped__ = sell  # type: ignore[attr-defined]
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().location == "/thanks"
    assert (seen, shop.stock(), held(shop)) == ([302], 9, False)
