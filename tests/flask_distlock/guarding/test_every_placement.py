"""Wherever a guard stands: the lock encloses the transaction, or an error names the line to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask, abort

from distlock.errors import ConfigurationError
from flask_distlock import DistLock
from tests.flask_distlock.guarding.placements import placed
from tests.flask_distlock.guarding.recorded_shop import ORDER, RecordedShop
from tests.flask_distlock.guarding.refused_placements import refused
from tests.flask_distlock.guarding.rule_placements import ruled

arrangements = placed | ruled


@pytest.fixture
def shop(make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path) -> Iterator[RecordedShop]:
    shop = RecordedShop(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), locks)
    yield shop
    shop.close()


@pytest.mark.parametrize("arrangement", arrangements)
def test_the_lock_encloses_the_transaction(shop: RecordedShop, arrangement: str) -> None:
    arrangements[arrangement](shop)
    assert shop.post().text == "sold"
    assert shop.log == ORDER
    assert shop.stock() == 9


@pytest.mark.parametrize("arrangement", arrangements)
def test_whoever_does_not_get_the_lock_is_answered_and_does_nothing(
    shop: RecordedShop, arrangement: str
) -> None:
    arrangements[arrangement](shop)
    response = shop.contended()
    assert (response.status_code, response.get_json(force=True)["code"]) == (423, "lock_contended")
    assert shop.log == ["names"]


@pytest.mark.parametrize("arrangement", arrangements)
def test_the_session_begins_under_the_lock_whatever_a_hook_has_read(
    shop: RecordedShop, arrangement: str
) -> None:
    @shop.app.before_request
    def login() -> None:
        shop.product()

    arrangements[arrangement](shop)
    assert shop.post().text == "sold"
    at = shop.log.index("lock")
    assert shop.log[at - 1 :] == ["ROLLBACK", *ORDER[1:]]


@pytest.mark.parametrize("arrangement", arrangements)
def test_whom_a_hook_turns_away_asks_for_no_lock(shop: RecordedShop, arrangement: str) -> None:
    shop.app.before_request(lambda: abort(401))
    arrangements[arrangement](shop)
    assert shop.post().status_code == 401
    assert [what for what in shop.log if what != "names"] == []


@pytest.mark.parametrize("arrangement", refused)
def test_what_cannot_hold_is_refused(shop: RecordedShop, arrangement: str) -> None:
    message, arrange = refused[arrangement]

    def first_request() -> None:
        if not shop.app.view_functions.get("buy"):
            arrange(shop)
        shop.post()

    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            first_request()
    assert "COMMIT" not in shop.log
    assert shop.stock() == 10
