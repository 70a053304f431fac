from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection, connections, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

Serve = Callable[..., Client]


class Log(list[str]):
    """What happened, and whether the lock was held: ``view+``."""

    def note(self, what: str) -> None:
        self.append(f"{what}{'+' if locks.lock('product_1').locked() else '-'}")

    def view(self, request: HttpRequest, id: int) -> HttpResponse:
        self.note("view")
        return HttpResponse("sold")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()

    def follow(word: str) -> None:
        inner = getattr(connection, f"_{word}")

        def noting() -> None:
            log.note(word)
            inner()

        monkeypatch.setattr(connection, f"_{word}", noting)

    connection.ensure_connection()
    follow("commit")
    follow("rollback")
    return log


def guarded(log: Log, inside: Callable[[], object] = lambda: None):
    @distributed_lock("product_<id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        log.note(f"view{'' if connection.in_atomic_block else ' in autocommit'}")
        inside()
        return HttpResponse("sold")

    return view


pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_under_atomic_requests_the_lock_encloses_commit(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    response = serve(guarded(log)).post("/product/1")
    log.note("answer")
    assert response.content == b"sold"
    assert log == ["view+", "commit+", "answer-"]


@pytest.mark.parametrize("error", [Http404, SystemExit, ZeroDivisionError])
def test_a_view_that_raises_is_rolled_back_inside_the_lock(
    serve: Serve, atomic_requests: None, log: Log, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    client = serve(guarded(log, fail))
    if error is Http404:
        assert client.post("/product/1").status_code == 404
    else:
        with pytest.raises(error):
            client.post("/product/1")
    log.note("answer")
    assert log == ["view+", "rollback+", "answer-"]


def test_on_commit_hooks_run_under_the_lock(serve: Serve, atomic_requests: None, log: Log) -> None:
    serve(guarded(log, lambda: transaction.on_commit(lambda: log.note("hook")))).post("/product/1")
    assert log == ["view+", "commit+", "hook+"]


def test_without_atomic_requests_no_transaction_is_opened(serve: Serve, log: Log) -> None:
    serve(guarded(log)).post("/product/1")
    assert log == ["view in autocommit+"]


def test_a_transaction_of_the_view_itself_is_committed_under_the_lock(serve: Serve, log: Log) -> None:
    def inside() -> None:
        with transaction.atomic():
            log.note("atomic")

    serve(guarded(log, inside)).post("/product/1")
    assert log == ["view in autocommit+", "atomic+", "commit+"]


@pytest.mark.parametrize("above", [True, False])
def test_a_view_that_opted_out_of_atomic_requests_stays_so(
    serve: Serve, atomic_requests: None, log: Log, above: bool
) -> None:
    if above:
        view = transaction.non_atomic_requests(guarded(log))
    else:

        @distributed_lock("product_<id>")
        @transaction.non_atomic_requests
        def view(request: HttpRequest, id: int) -> HttpResponse:
            log.note("view in autocommit" if not connection.in_atomic_block else "view")
            return HttpResponse()

    serve(view).post("/product/1")
    assert log == ["view in autocommit+"]


def test_opting_out_above_does_not_reach_the_function_below() -> None:
    @transaction.non_atomic_requests("other")
    def view(request: HttpRequest, id: int) -> HttpResponse: ...

    transaction.non_atomic_requests(distributed_lock("product_<id>")(view))
    assert view._non_atomic_requests == {"other"}


def test_each_database_with_atomic_requests_is_committed_under_the_lock(
    serve: Serve, atomic_requests: None, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["other"], "ATOMIC_REQUESTS", True)
    seen: list[bool] = []
    client = serve(guarded(log, lambda: seen.append(connections["other"].in_atomic_block)))
    client.post("/product/1")
    assert seen == [True]


def test_a_decorator_that_forgets_wraps_is_found(serve: Serve, atomic_requests: None, log: Log) -> None:
    view = guarded(log)
    with pytest.raises(ConfigurationError, match=r"need functools\.wraps"):
        serve(lambda request, id: view(request, id)).post("/product/1")
    assert log == ["rollback-"]


def test_a_transaction_above_the_decorator_is_refused_with_the_line_to_change(serve: Serve, log: Log) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Write @distributed_lock above whatever opens it, transaction\.atomic"
    ):
        serve(transaction.atomic(guarded(log))).post("/product/1")
    assert log == ["rollback-"]


def test_a_transaction_below_the_decorator_is_fine(serve: Serve, log: Log) -> None:
    serve(distributed_lock("product_<id>")(transaction.atomic(log.view))).post("/product/1")
    assert log == ["view+", "commit+"]


def test_decorators_with_wraps_may_stand_above(serve: Serve, atomic_requests: None, log: Log) -> None:
    serve(csrf_exempt(guarded(log))).post("/product/1")
    assert log == ["view+", "commit+"]


def test_a_plain_function_inside_the_transaction_of_a_view_is_refused(
    serve: Serve, atomic_requests: None
) -> None:
    @distributed_lock("product_<id>")
    def sell(id: int) -> None:
        pytest.fail("ran")

    def view(request: HttpRequest, id: int) -> HttpResponse:
        sell(id)
        return HttpResponse()

    with pytest.raises(ConfigurationError, match="inside a transaction of the database 'default'"):
        serve(view).post("/product/1")


def test_a_plain_function_called_by_its_own_guard_reenters(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    sell = distributed_lock("product_<id>")(lambda id: log.note("sell"))
    serve(guarded(log, lambda: sell(1))).post("/product/1")
    assert log == ["view+", "sell+", "commit+"]


def test_a_new_name_under_an_outer_guard_is_refused_with_the_line_to_change(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    sell = distributed_lock("shop")(lambda: pytest.fail("ran"))
    with pytest.raises(ConfigurationError, match=r"@distributed_lock\(…, 'shop'\), on the outer function"):
        serve(guarded(log, sell)).post("/product/1")


def test_with_autocommit_off_nobody_knows_when_it_is_committed(serve: Serve, log: Log) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(ConfigurationError, match="autocommit is off"):
            serve(guarded(log)).post("/product/1")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_autocommit_that_the_settings_switch_off_is_refused_before_anything_is_connected(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["other"], "AUTOCOMMIT", False)
    view = distributed_lock("product_<id>")(lambda request, id: pytest.fail("ran"))
    with pytest.raises(ConfigurationError, match="autocommit is off on the database 'other'"):
        serve(view).post("/product/1")


def test_a_method_that_is_not_locked_is_atomic_as_before(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    serve(distributed_lock("product_<id>", methods=["POST"])(log.view)).get("/product/1")
    assert log == ["view-", "commit-"]


def test_a_class_decorated_on_dispatch_is_locked_around_commit(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    @method_decorator(distributed_lock("product_<id>"), name="dispatch")
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return log.view(request, id)

    assert serve(Buy.as_view()).post("/product/1").status_code == 200
    assert log == ["view+", "commit+"]


def test_a_class_decorated_on_one_method_is_refused_under_atomic_requests(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    class Buy(View):
        @method_decorator(distributed_lock("product_<id>"))
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return log.view(request, id)

    with pytest.raises(ConfigurationError, match="above the class Buy"):
        serve(Buy.as_view()).post("/product/1")
    assert log == ["rollback-"]


def test_a_lock_that_is_lost_before_commit_is_rolled_back_and_answered(
    serve: Serve, atomic_requests: None, log: Log
) -> None:
    # Closing the client is to a grant what an ended lease is.
    response = serve(guarded(log, locks.close_all)).post("/product/1")
    assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
    assert log == ["view+", "rollback-"]


def test_a_lock_that_is_lost_where_the_view_commits_by_itself_leaves_its_answer(
    serve: Serve, log: Log
) -> None:
    assert serve(guarded(log, locks.close_all)).post("/product/1").content == b"sold"


class TestInsideTheTransactionOfATestCase:
    pytestmark = pytest.mark.django_db

    def test_a_locked_view_can_be_tested(self, serve: Serve, atomic_requests: None) -> None:
        seen: list[bool] = []

        @distributed_lock("product_<id>")
        def view(request: HttpRequest, id: int) -> HttpResponse:
            seen.append(locks.lock("product_1").locked())
            return HttpResponse()

        client = serve(view)
        assert [client.post("/product/1").status_code for _ in range(2)] == [200, 200]
        assert seen == [True, True]

    def test_a_locked_function_can_be_tested(self) -> None:
        sell = distributed_lock("product_<id>")(lambda id: "sold")
        assert sell(1) == "sold"
