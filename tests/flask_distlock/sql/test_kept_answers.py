"""What is answered where a lock was kept, and was lost, or nobody has committed what was under it."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Response

from distlock.errors import LockLost
from tests.flask_distlock.sql.session_shop import Call, Shop, after, held


@pytest.mark.parametrize("where", ["after_request", "teardown_request", "teardown_appcontext"])
def test_a_lock_that_is_lost_before_the_commit_of_a_hook_is_a_503(
    shop: Shop, sell: Call, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[None] = []

    def hook(response: Any) -> Any:
        runs.append(None)
        shop.locks.close()
        shop.db.session.commit()
        return response

    getattr(shop.app, where)(hook)
    shop.serve(sell)
    response = shop.post()
    assert (response.status_code, response.get_json(force=True)["code"]) == (503, "lock_lost")
    assert response.headers["Retry-After"] == "1"
    assert (len(runs), shop.stock()) == (1, 10)
    assert "was lost" in caplog.text
    assert shop.app.test_client().get("/nowhere").status_code == 404


def test_a_site_answers_a_loss_in_a_hook_by_itself(shop: Shop, sell: Call) -> None:
    def lose() -> None:
        shop.locks.close()
        shop.db.session.commit()

    shop.app.register_error_handler(LockLost, lambda error: ("try again", 409))
    after(shop, lose)
    shop.serve(sell)
    response = shop.post()
    assert (response.status_code, response.text) == (409, "try again")


def test_a_hook_that_hides_the_loss_does_not_hide_it_from_the_client(shop: Shop, sell: Call) -> None:
    def lose() -> None:
        shop.locks.close()
        with pytest.raises(LockLost):
            shop.db.session.commit()

    after(shop, lose)
    shop.serve(sell)
    assert shop.post().status_code == 503


def test_nobody_commits_and_the_server_says_so(
    shop: Shop, sell: Call, caplog: pytest.LogCaptureFixture
) -> None:
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False
    shop.app.teardown_request(lambda error: shop.db.session.rollback())
    shop.serve(sell)
    response = shop.post()
    assert response.status_code == 500
    assert "call db.session.commit() inside it" in caplog.text
    assert (shop.stock(), held(shop)) == (10, False)


def test_a_hook_that_answers_a_refusal_needs_no_commit(shop: Shop, sell: Call) -> None:
    shop.app.after_request(lambda response: Response("sold out", 409))
    shop.serve(sell)
    assert shop.post().status_code == 409
    assert (shop.stock(), held(shop)) == (10, False)


@pytest.mark.parametrize("where", ["after_request", "teardown_request", "teardown_appcontext"])
def test_a_hook_that_raises_leaves_nothing_behind(shop: Shop, sell: Call, where: str) -> None:
    trouble = [ZeroDivisionError]

    def hook(response: Any) -> Any:
        if trouble:
            raise trouble.pop()
        return response

    getattr(shop.app, where)(hook)
    shop.serve(sell)
    with pytest.raises(ZeroDivisionError):
        shop.post()
    assert (shop.stock(), held(shop)) == (10, False)
