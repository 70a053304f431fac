"""A view that answers with 400 or more is rolled back, in whatever form it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Response
from werkzeug.datastructures import Headers
from werkzeug.exceptions import Conflict, HTTPException
from werkzeug.wrappers import Response as PlainResponse

from tests.flask_distlock.sql.session_shop import Shop, after


@pytest.fixture(autouse=True)
def commits(shop: Shop) -> None:
    """A hook commits whatever is left to it."""
    after(shop, shop.db.session.commit)


def refuse() -> Response:
    return Response("sold out", 409)


REFUSALS: dict[str, Callable[[], Any]] = {
    "a tuple": lambda: ("sold out", 409),
    "a tuple with words": lambda: ("sold out", "409 CONFLICT"),
    "a tuple with headers": lambda: ("sold out", 409, {"X-A": "1"}),
    "a response": refuse,
    "a response with headers": lambda: (refuse(), {"X-A": "1"}),
    "a response with a list of headers": lambda: (refuse(), [("X-A", "1")]),
    "a response with Headers": lambda: (refuse(), Headers({"X-A": "1"})),
    "a response with no status of its own": lambda: (refuse(), None, {"X-A": "1"}),
    "a response of Werkzeug": lambda: PlainResponse("sold out", 409),
    "an exception": Conflict,
    "an exception with headers": lambda: (Conflict(), {"X-A": "1"}),
    "an exception with a response": lambda: HTTPException(response=refuse()),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_what_a_refusing_view_leaves_behind_is_rolled_back(shop: Shop, refusal: Callable[[], Any]) -> None:
    def view() -> Any:
        shop.product().stock -= 20
        return refusal()

    shop.serve(view)
    assert shop.post().status_code == 409
    assert shop.stock() == 10


@pytest.mark.parametrize("status", ["x", "weird", 299, "201 CREATED", "0 odd"])
def test_an_odd_status_is_a_success(shop: Shop, status: Any) -> None:
    shop.serve(lambda: (shop.sell(), status))
    assert shop.post().text == "sold"
    assert shop.stock() == 9


def test_a_tuple_may_say_better_than_its_response(shop: Shop) -> None:
    shop.serve(lambda: (shop.sell() and refuse(), 200))
    assert shop.post().status_code == 200
    assert shop.stock() == 9
