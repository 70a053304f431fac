"""Two decorators of two lock services on one view: it takes both locks before its one transaction begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import Group
from django.db import connection, connections
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.views import APIView

import distlock
from distlock import clock
from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from distlock.testing.fakes import lose_grant
from distlock.web import guard_lock
from django_distlock import distributed_lock, locks
from django_distlock.conf import MIDDLEWARE
from django_distlock.models import FenceRow
from django_distlock.signals import lock_acquired, lock_contended, lock_refused, lock_released

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


async def asell(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


def ask(serve: Serve, view: Any, **cookies: str) -> Any:
    """Post to *view*, in an event loop if it is async."""
    client = serve(view)
    if iscoroutinefunction(view):
        in_loop = AsyncClient()
        in_loop.cookies.load(cookies)
        return asyncio.run(in_loop.post("/product/1"))
    client.cookies.load(cookies)
    return client.post("/product/1")


@contextmanager
def connected(signal: Signal, receiver: Callable[..., None]) -> Iterator[None]:
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


@contextmanager
def heard(signal: Signal) -> Iterator[list[str]]:
    """Of which aliases *signal* is sent."""
    aliases: list[str] = []

    def note(alias: str, **_: Any) -> None:
        aliases.append(alias)

    with connected(signal, note):
        yield aliases


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
        with locks[taken].lock("product_1"), heard(lock_contended) as contended:
            # The lower guard waits for what is left of the time of the upper one.
            assert serve(view).post("/product/1").status_code == 423
            assert held() == taken
    finally:
        lock_refused.disconnect(note)
    assert refused[0] == (taken, True)
    assert contended == [taken]


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


def test_a_rule_and_the_decorator_of_its_view_are_a_stack(
    serve: Serve, settings: Any, atomic_requests: None, commits: list[str]
) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.DISTLOCK_RULES = [{"route": "sell", "lock": "product_<id>", "alias": "old", "methods": ["*"]}]
    client = serve([path("product/<int:id>", both[1](sell), name="sell")])
    assert client.post("/product/1").content == b"old new, in transaction"
    assert set(commits) == {"old new"}


def test_two_fences_in_two_databases_are_refused(serve: Serve) -> None:
    view = stacked(
        sell,
        distributed_lock("product_<id>", alias="old", fence="default"),
        distributed_lock("product_<id>", alias="new", fence="other"),
    )
    with pytest.raises(ConfigurationError, match="write fence=False on one of them"):
        serve(view).post("/product/1")


@pytest.mark.parametrize("order", [["row", "new"], ["new", "row"]], ids="-".join)
def test_a_fence_beside_a_row_that_is_the_lock_is_refused(
    serve: Serve, settings: Any, order: list[str]
) -> None:
    settings.DISTLOCK = {**settings.DISTLOCK, "row": {"BACKEND": "database"}}
    words = {"row": {}, "new": {"fence": True}}
    view = stacked(sell, *(distributed_lock("product_<id>", alias=alias, **words[alias]) for alias in order))
    with pytest.raises(ConfigurationError, match="If the lock of one is a row of the database"):
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


@pytest.mark.parametrize("view", [sell, asell])
@pytest.mark.parametrize("lower", [{}, {"timeout": 900}], ids=["none of its own", "longer"])
def test_the_lower_lock_is_waited_for_until_the_deadline_of_the_upper(
    serve: Serve, settings: Any, monkeypatch: pytest.MonkeyPatch, lower: dict[str, Any], view: Any
) -> None:
    own = {alias: {"LOCATION": f"memory://short-{alias}", "TIMEOUT": 0.2} for alias in ("between", "new")}
    settings.DISTLOCK = {**settings.DISTLOCK, **own}
    late, waits = [0.0], dict[str, float]()
    monkeypatch.setattr(guard_lock, "now", lambda: clock.now() + late[0])

    def note(alias: str, grant: distlock.Grant, **_: Any) -> None:
        waits[alias] = grant.timeout
        # As if the upper lock had been waited for so long.
        late[0] = 300

    view = stacked(
        view,
        distributed_lock("product_<id>", alias="old", timeout=600),
        distributed_lock("product_<id>", alias="between", **lower),
        distributed_lock("product_<id>", alias="new", **lower),
    )
    with connected(lock_acquired, note):
        assert ask(serve, view).status_code == 200
    assert 60 < waits["between"] <= 300
    assert 60 < waits["new"] <= 300


def test_the_uppermost_guard_waits_as_long_as_its_own_alias_says(serve: Serve) -> None:
    waits = dict[str, float]()

    def note(alias: str, grant: distlock.Grant, **_: Any) -> None:
        waits[alias] = grant.timeout

    with connected(lock_acquired, note):
        assert serve(stacked(sell)).post("/product/1").status_code == 200
    assert 0 < waits["old"] <= 60


def test_a_guard_that_was_called_by_another_locks_alone_when_it_is_called_alone(serve: Serve) -> None:
    lower = both[1](sell)
    assert serve(both[0](lower)).post("/product/1").content == b"old new, no transaction"
    assert lower(HttpRequest(), id=1).content == b"new, no transaction"


def test_the_order_of_a_stack_is_no_cause_for_a_warning(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    lowest = distributed_lock("product_<id>")
    one, other = stacked(sell, *both, lowest), stacked(sell, *reversed(both), lowest)
    client = serve([path("up/<int:id>", one), path("down/<int:id>", other)])
    assert [client.post(f"/{way}/1").status_code for way in ("up", "down")] == [200, 200]
    assert "stands inside" not in caplog.text


def test_guards_of_other_methods_are_no_stack(serve: Serve) -> None:
    guards = {alias: [method] for alias, method in (("old", "POST"), ("new", "PUT"))}
    view = stacked(
        sell,
        *(distributed_lock("product_<id>", alias=one, methods=methods) for one, methods in guards.items()),
    )
    client = serve(view)
    assert client.post("/product/1").content == b"old, no transaction"
    assert client.put("/product/1").content == b"new, no transaction"


def test_nor_are_rules_that_each_ask_when(serve: Serve, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.DISTLOCK_RULES = [
        {"route": "sell", "lock": "product_<id>", "alias": alias, "methods": ["*"], "when": when}
        for alias, when in (("old", lambda request, id: True), ("new", lambda request, id: False))
    ]
    client = serve([path("product/<int:id>", sell, name="sell")])
    assert client.post("/product/1").content == b"old, no transaction"


@pytest.mark.parametrize("kind", ["view", "async view"])
def test_a_guard_below_that_does_not_lock_the_call_is_refused_before_the_body(
    serve: Serve, kind: str
) -> None:
    class Sale(View):
        @distributed_lock("product_<id>", alias="old", methods=["GET", "HEAD"])
        @distributed_lock("product_<id>", alias="new", mode="shared")
        def get(self, request: HttpRequest, id: int) -> HttpResponse:
            pytest.fail("ran")

        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return self.get(request, id)

    class AsyncSale(View):
        @distributed_lock("product_<id>", alias="old", methods=["GET", "HEAD"])
        @distributed_lock("product_<id>", alias="new", mode="shared")
        async def get(self, request: HttpRequest, id: int) -> HttpResponse:
            pytest.fail("ran")

        async def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return await self.get(request, id)

    with pytest.raises(ConfigurationError, match="write the same methods= and mode= in both"):
        ask(serve, (Sale if kind == "view" else AsyncSale).as_view())
    assert held() == ""


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("base", [View, APIView])
def test_on_dispatch_the_upper_lock_is_taken_first(
    serve: Serve, request: pytest.FixtureRequest, base: type[View], atomic: bool
) -> None:
    if atomic:
        request.getfixturevalue("atomic_requests")
    cls: Any = method_decorator(both, name="dispatch")(type("Sale", (Sell, base), {}))
    with heard(lock_acquired) as acquired:
        response = serve(cls.as_view()).post("/product/1")
    assert response.content.decode() == f"old new, {'in' if atomic else 'no'} transaction"
    assert acquired == ["old", "new"]


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("base", [View, APIView])
def test_on_dispatch_the_upper_guard_of_one_alias_is_the_first(
    serve: Serve, request: pytest.FixtureRequest, base: type[View], atomic: bool
) -> None:
    if atomic:
        request.getfixturevalue("atomic_requests")
    # The lowest one does not lock the method. Under ATOMIC_REQUESTS a second lock would be refused.
    names = {"cart_<id>": ["POST"], "product_<id>": ["POST"], "page_<id>": ["OPTIONS"]}
    if atomic:
        del names["cart_<id>"]
    guards = [distributed_lock(name, alias="old", methods=methods) for name, methods in names.items()]
    cls: Any = method_decorator(guards, name="dispatch")(type("Sale", (Sell, base), {}))
    acquired: list[str] = []

    def note(names: tuple[str, ...], **_: Any) -> None:
        acquired.extend(names)

    with connected(lock_acquired, note):
        response = serve(cls.as_view()).post("/product/1")
    assert response.content.decode() == f"old, {'in' if atomic else 'no'} transaction"
    assert acquired == (["product_1"] if atomic else ["cart_1", "product_1"])


@pytest.mark.parametrize("view", [sell, asell])
def test_two_aliases_of_one_lock_service_do_not_wait_for_themselves(
    serve: Serve, settings: Any, view: Any
) -> None:
    one = {"LOCATION": settings.DISTLOCK["old"]["LOCATION"], "TIMEOUT": 1}
    settings.DISTLOCK = {**settings.DISTLOCK, "old": one, "new": one}
    assert ask(serve, stacked(view)).status_code == 200
    assert held() == ""


@pytest.mark.parametrize("order", [["row", "new"], ["new", "row"]], ids="-".join)
def test_signals_are_sent_of_a_row_as_of_the_other_lock(
    serve: Serve, settings: Any, order: list[str]
) -> None:
    settings.DISTLOCK = {**settings.DISTLOCK, "row": {"BACKEND": "database"}}
    decorators = [distributed_lock("product_<id>", alias=alias) for alias in order]
    with heard(lock_acquired) as acquired, heard(lock_released) as released:
        assert serve(stacked(sell, *decorators)).post("/product/1").status_code == 200
    assert (sorted(acquired), sorted(released)) == (["new", "row"], ["new", "row"])


@pytest.mark.parametrize("view", [sell, asell])
def test_a_refused_upper_lock_is_the_only_one_that_is_told(serve: Serve, view: Any) -> None:
    view = stacked(view, distributed_lock("product_<id>", alias="old", timeout=0.1), both[1])
    with locks["old"].lock("product_1"), heard(lock_refused) as refused:
        assert ask(serve, view).status_code == 423
    assert refused == ["old"]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()
