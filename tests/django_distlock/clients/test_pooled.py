"""``OPTIONS={"pool": …}``: more callers than connections, and a middleware that reads before the guard."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock.testing.waits import wait_for_waiters
from django_distlock import distributed_lock, locks
from django_distlock.clients.idle_connections import _waits
from django_distlock.models import FenceRow
from tests.django_distlock.clients.pool import ALIAS, CONNECTIONS, database, pool, read
from tests.redis_server import eventually

__all__ = ["database", "pool"]

CALLERS = 12
#: The test itself has used the other connection.
FREE = CONNECTIONS - 1

_numbers = itertools.count()


@pytest.fixture(params=["a lock service", "rows"])
def configured(request: pytest.FixtureRequest, settings: Any) -> None:
    service = {"LOCATION": f"memory://pool{next(_numbers)}", "FENCE": ALIAS}
    rows = {"BACKEND": "database", "LOCATION": ALIAS, "PREFIX": str(next(_numbers))}
    limits = {"TIMEOUT": 60, "MAX_WAITERS": 64}
    settings.DISTLOCK = {"default": (rows if request.param == "rows" else service) | limits}


def call(query: str) -> int:
    try:
        return Client(raise_request_exception=False).post(f"/product/1{query}").status_code
    finally:
        connections[ALIAS].close()


@pytest.mark.fault("F34")
@pytest.mark.usefixtures("configured")
def test_who_waits_leaves_the_connections_to_who_holds_the_lock(
    pool: Any, serve: Callable[..., Client]
) -> None:
    held, go = threading.Event(), threading.Event()

    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        held.set()
        assert go.wait(60)
        read()
        return HttpResponse()

    serve(view)
    with ThreadPoolExecutor(CALLERS) as callers:
        calls: list[Future[int]] = [callers.submit(call, "")]
        assert held.wait(60)
        # The next one has no connection yet, and those behind it have used theirs.
        calls.append(callers.submit(call, ""))
        eventually(lambda: len(_waits) == 1, "somebody waits")
        calls += [callers.submit(call, "?session=1") for _ in range(CALLERS - 2)]
        eventually(
            lambda: len(_waits) == CALLERS - 1 or pool.get_stats().get("requests_waiting", 0),
            "all wait for the lock, or for a connection",
        )
        go.set()
        assert [one.result() for one in calls] == [200] * CALLERS


@pytest.mark.fault("F34", control=True)
def test_who_holds_the_lock_finds_no_connection_where_those_who_wait_keep_theirs(
    pool: Any, serve: Callable[..., Client], settings: Any
) -> None:
    limits = {"TIMEOUT": 60, "MAX_WAITERS": 64}
    settings.DISTLOCK = {"default": {"LOCATION": f"memory://pool{next(_numbers)}", **limits}}
    settings.DISTLOCK_KEEP_CONNECTIONS = True
    held, go = threading.Event(), threading.Event()

    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        held.set()
        assert go.wait(60)
        read()
        return HttpResponse()

    serve(view)
    with ThreadPoolExecutor(CALLERS) as callers:
        holder = callers.submit(call, "")
        assert held.wait(60)
        others = [callers.submit(call, "?session=1") for _ in range(FREE)]
        wait_for_waiters(locks["default"], FREE)
        go.set()
        assert holder.result() == 500
        assert [other.result() for other in others] == [200] * FREE


def kept_over_a_wait(before: Callable[[], object]) -> bool:
    """Whether a thread that has done *before* keeps its connection while it waits for a lock."""
    kept: list[bool] = []

    def waiter() -> None:
        used = before()
        connection = connections[ALIAS].connection
        assert connection is not None
        locks.lock("product_1").acquire(timeout=0.05)
        kept.append(connections[ALIAS].connection is connection)
        del used
        connections[ALIAS].close()

    with locks.lock("product_1"):
        thread = threading.Thread(target=waiter)
        thread.start()
        thread.join()
    return kept == [True]


@pytest.fixture
def service(settings: Any) -> None:
    settings.DISTLOCK = f"memory://pool{next(_numbers)}"


@pytest.mark.usefixtures("pool", "service")
def test_a_setting_keeps_the_connections(settings: Any) -> None:
    assert not kept_over_a_wait(read)
    settings.DISTLOCK_KEEP_CONNECTIONS = True
    assert kept_over_a_wait(read)


def iterate() -> object:
    rows = FenceRow.objects.using(ALIAS).iterator(chunk_size=1)
    next(rows)
    return rows


@pytest.mark.usefixtures("pool", "service")
@pytest.mark.parametrize(
    "use",
    [
        # A transaction that Django does not know of.
        lambda: connections[ALIAS].cursor().execute("BEGIN"),
        lambda: connections[ALIAS].cursor().execute("SELECT pg_advisory_lock(1)"),
        iterate,
    ],
    ids=["BEGIN", "an advisory lock", "a queryset that is read on"],
)
def test_only_idle_and_clean_ones_go_back(use: Callable[[], object]) -> None:
    for name in "ab":
        FenceRow(name, "", name, 1, 1, "", 1).save(using=ALIAS)
    connections[ALIAS].close()
    assert kept_over_a_wait(use)


@pytest.mark.usefixtures("service")
def test_a_connection_that_is_in_no_pool_stays(pool: Any) -> None:
    connections.settings[ALIAS]["OPTIONS"] = {}
    del connections[ALIAS]
    try:
        assert kept_over_a_wait(read)
    finally:
        connections.settings[ALIAS]["OPTIONS"] = {"pool": True}
        connections[ALIAS].close()


@pytest.mark.usefixtures("pool", "service")
def test_who_need_not_wait_keeps_it() -> None:
    read()
    before = connections[ALIAS].connection
    with locks.lock("product_1"):
        assert connections[ALIAS].connection is before
