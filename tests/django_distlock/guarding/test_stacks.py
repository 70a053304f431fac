"""Two decorators of two lock services on one view: it takes both locks before its one transaction begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.views import APIView

import distlock
from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from distlock.testing.fakes import lose_grant
from django_distlock import distributed_lock, locks
from django_distlock.models import FenceRow
from django_distlock.signals import lock_acquired, lock_refused

Serve = Callable[..., Client]

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

both = (distributed_lock("product_<id>", alias="old"), distributed_lock("product_<id>", alias="new"))


@pytest.fixture(autouse=True)
def aliases(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.DISTLOCK = {
        "default": {"LOCATION": f"memory://third-{request.node.name}"},
        "old": {"LOCATION": f"memory://old-{request.node.name}", "TIMEOUT": 60},
        "new": {"LOCATION": f"memory://new-{request.node.name}", "TIMEOUT": 60, "FENCE_EPOCH": 2},
    }


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which locks were held at each COMMIT."""
    found: list[str] = []
    connection.ensure_connection()
    inner = connection._commit

    def commit() -> None:
        found.append(held())
        inner()

    monkeypatch.setattr(connection, "_commit", commit)
    return found


def held() -> str:
    return " ".join(alias for alias in ("old", "new") if locks[alias].lock("product_1").locked())


def grant_of(alias: str) -> distlock.Grant:
    (grant,) = (one.grant for one in current_grants() if one.namespace is locks[alias].namespace)
    return grant


def sell(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(f"{held()}, {'in' if connection.in_atomic_block else 'no'} transaction")


def stacked(view: Any, *decorators: Any) -> Any:
    for decorate in reversed(decorators or both):
        view = decorate(view)
    return view


class Sell:
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)


@pytest.mark.parametrize("kind", ["function", "class", "api class", "api view", "as_view()"])
def test_both_locks_enclose_the_one_transaction(
    serve: Serve, atomic_requests: None, commits: list[str], kind: str
) -> None:
    make = {
        "function": lambda: stacked(sell),
        "class": lambda: stacked(type("Sale", (Sell, View), {})).as_view(),
        "as_view()": lambda: stacked(type("Sale", (Sell, View), {}).as_view()),
        "api class": lambda: stacked(type("Sale", (Sell, APIView), {})).as_view(),
        "api view": lambda: stacked(api_view(["POST"])(sell)),
    }
    view = make[kind]()
    assert serve(view).post("/product/1").content == b"old new, in transaction"
    assert (commits, held()) == (["old new"], "")


def test_an_async_view_takes_both_locks(serve: Serve) -> None:
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse(" ".join(map(str, [grant_of(alias).names for alias in ("old", "new")])))

    serve(stacked(view))
    response = asyncio.run(AsyncClient().post("/product/1"))
    assert response.content == b"('product_1',) ('product_1',)"
    assert held() == ""


def test_the_current_grant_is_that_of_the_upper_guard(serve: Serve) -> None:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse(str(distlock.current_grant() is grant_of("old")))

    assert serve(stacked(view)).post("/product/1").content == b"True"


def test_three_lock_services_form_one_stack(serve: Serve, atomic_requests: None, commits: list[str]) -> None:
    view = stacked(sell, distributed_lock("product_<id>", alias="default"), *both)
    assert serve(view).post("/product/1").content == b"old new, in transaction"
    assert commits == ["old new"]
    assert not locks["default"].lock("product_1").locked()


@pytest.mark.parametrize("taken", ["old", "new"])
def test_who_holds_either_lock_keeps_the_view_out(serve: Serve, atomic_requests: None, taken: str) -> None:
    view = stacked(
        lambda request, id: pytest.fail("ran"),
        distributed_lock("product_<id>", alias="old", timeout=0.1),
        distributed_lock("product_<id>", alias="new"),
    )
    refused: list[tuple[str, bool]] = []

    def note(alias: str, waited: float, **_: Any) -> None:
        refused.append((alias, waited < 30))

    lock_refused.connect(note)
    try:
        with locks[taken].lock("product_1"):
            # The lower guard waits for what is left of the time of the upper one.
            assert serve(view).post("/product/1").status_code == 423
            assert held() == taken
    finally:
        lock_refused.disconnect(note)
    assert refused[0] == (taken, True)


@pytest.mark.parametrize("lost", ["old", "new"])
def test_the_loss_of_either_rolls_back(
    serve: Serve, atomic_requests: None, commits: list[str], lost: str
) -> None:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        lose_grant(grant_of(lost), "a test")
        return HttpResponse("sold")

    response = serve(stacked(view)).post("/product/1")
    assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
    assert commits == []


@pytest.mark.parametrize("fenced", ["old", "new", "both"])
def test_the_fence_is_that_of_the_upper_guard_that_has_one(serve: Serve, fenced: str) -> None:
    grants: dict[str, distlock.Grant] = {}
    lock_acquired.connect(lambda alias, grant, **_: grants.setdefault(alias, grant), weak=False)
    words = {alias: {"fence": True} if fenced in {alias, "both"} else {} for alias in ("old", "new")}

    def view(request: HttpRequest, id: int) -> HttpResponse:
        Group.objects.create(name="a sale")
        return sell(request, id)

    view = stacked(view, *(distributed_lock("product_<id>", alias=alias, **words[alias]) for alias in words))
    assert serve(view).post("/product/1").content == b"old new, in transaction"
    row = FenceRow.objects.get(name="product_1")
    fence = grants["new" if fenced == "new" else "old"].fence
    assert (row.epoch, row.number) == (fence.epoch, fence.number)


def test_two_stacks_in_opposite_orders_do_not_wait_for_their_timeouts(serve: Serve) -> None:
    """In one process the request that closes the ring is refused at once, and the other one is served."""
    meeting, first_two = threading.Barrier(2, timeout=60), iter(range(2))

    def meet(**_: Any) -> None:
        if next(first_two, None) is not None:
            meeting.wait()

    client = serve(
        [path("up/<int:id>", stacked(sell)), path("down/<int:id>", stacked(sell, *reversed(both)))]
    )
    lock_acquired.connect(meet)
    try:
        with ThreadPoolExecutor(2) as pool:
            statuses = list(pool.map(lambda way: client.post(f"/{way}/1").status_code, ("up", "down")))
    finally:
        lock_acquired.disconnect(meet)
    assert sorted(statuses) == [200, 423]


@pytest.mark.parametrize("order", [["row", "new"], ["new", "row"]], ids="-".join)
def test_a_row_that_is_the_lock_may_be_one_of_the_two(
    serve: Serve, settings: Any, commits: list[str], order: list[str]
) -> None:
    settings.DISTLOCK = {**settings.DISTLOCK, "row": {"BACKEND": "database"}}
    view = stacked(sell, *(distributed_lock("product_<id>", alias=alias) for alias in order))
    assert serve(view).post("/product/1").content == b"new, in transaction"
    assert commits == ["new"]


def test_two_fences_in_two_databases_are_refused(serve: Serve) -> None:
    view = stacked(
        sell,
        distributed_lock("product_<id>", alias="old", fence="default"),
        distributed_lock("product_<id>", alias="new", fence="other"),
    )
    with pytest.raises(ConfigurationError, match="write fence=False on one of them"):
        serve(view).post("/product/1")


def test_a_batch_is_refused_at_import() -> None:
    with pytest.raises(ConfigurationError, match=r"leave batch= out until one of the two decorators is gone"):
        stacked(sell, both[0], distributed_lock("product_<id>", alias="new", batch=8, fence=True))


def test_a_decorator_between_the_two_guards_is_refused_as_before(serve: Serve, atomic_requests: None) -> None:
    def between(view: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return view(*args, **kwargs)

        call.__wrapped__ = view  # type: ignore[attr-defined]
        return call

    with pytest.raises(ConfigurationError, match="a transaction"):
        serve(stacked(sell, both[0], between, both[1])).post("/product/1")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()
