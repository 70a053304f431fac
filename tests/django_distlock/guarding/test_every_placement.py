"""Wherever a guard stands, requests see the one order, or an error that names the line to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.urls import path

from distlock.errors import ConfigurationError
from tests.django_distlock.guarding.placements import on_async_views, on_classes, on_functions, on_rest_views
from tests.django_distlock.guarding.placements.table import PLACEMENTS, Placement
from tests.django_distlock.watching import Events, by_asgi, by_wsgi, watched

MODULES = (on_async_views, on_classes, on_functions, on_rest_views)


@pytest.fixture
def database(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[dict[str, Any]]:
    """The default database in a file, which each thread has a connection of its own to."""
    usual = connections["default"]
    # Undone here: what is closed under that name afterwards would be the usual one, which is in memory only.
    with monkeypatch.context() as patch:
        patch.setitem(connections.settings["default"], "NAME", str(tmp_path / "shop.sqlite3"))
        del connections["default"]
        yield connections.settings["default"]
        connections["default"].close()
    connections["default"] = usual


def serve(placement: Placement, events: Events, settings: Any) -> str:
    """Serve the view of *placement*. Gives its URL."""
    view = placement.make(events)
    routed = isinstance(view, tuple)

    class Urls:
        # REST framework's routers make the routes by themselves.
        urlpatterns = [path("", view) if routed else path("product/<int:id>", view)]

    settings.ROOT_URLCONF = Urls
    return "/product/1/sell" if routed else "/product/1"


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
@pytest.mark.parametrize("ask", [by_wsgi, by_asgi])
@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.name)
def test_the_one_order_or_the_line_to_change(
    placement: Placement,
    ask: Callable[[str, str], int],
    atomic: bool,
    database: dict[str, Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(database, "ATOMIC_REQUESTS", atomic)
    expected = placement.atomic if atomic else placement.autocommit
    events = Events()

    url = serve(placement, events, settings)
    with watched(events):
        status = ask("POST", url)
    if isinstance(expected, str):
        assert status == 500
        assert re.search(expected, str(events.error)), events.error
        assert expected == on_async_views.DJANGO or isinstance(events.error, ConfigurationError)
        assert not {"view", "view without lock", "COMMIT"} & set(events)
    else:
        assert events == expected, events.error
        assert status in {200, 302}


#: What only a call can tell: other code stands between the route and the guard, and hides it.
UNSEEN = {"on_an_async_function_that_hides", "below_a_decorator_without_wraps"}

#: Where the check, which sees what stands there, says more than a call can.
SAYS_MORE = {
    "below_transaction_atomic": "Write @distributed_lock above @transaction.atomic",
    "inside_a_partial": r"hides the guard of .* Write DISTLOCK_RULES = .*\[…, \"shelf_<int:id>\"\]",
}


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.name)
def test_the_check_says_so_before_any_request(
    placement: Placement,
    atomic: bool,
    database: dict[str, Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(database, "ATOMIC_REQUESTS", atomic)
    expected = placement.atomic if atomic else placement.autocommit
    serve(placement, Events(), settings)
    found = [
        message for message in run_checks() if message.id.startswith("distlock.E01") and message.is_serious()
    ]
    if isinstance(expected, str) and placement.name not in UNSEEN and expected != on_async_views.DJANGO:
        assert [message.id for message in found] == ["distlock.E011"]
        assert re.search(SAYS_MORE.get(placement.name, expected), found[0].msg)
    else:
        assert found == []
