from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

import distlock
from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks
from tests.django_distlock.guarding.test_transactions import Log, log

__all__ = ["log"]

Serve = Callable[..., Client]


@pytest.fixture
def middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_distlock.middleware.DistlockMiddleware"]


def post(url: str, how: str) -> Any:
    return Client().post(url) if how == "wsgi" else async_to_sync(AsyncClient().post)(url)


@pytest.mark.usefixtures("middleware")
class TestLocksThatViewsTakeByThemselves:
    @pytest.mark.parametrize("how", ["wsgi", "asgi"])
    def test_a_lock_that_stays_taken_is_answered(
        self, serve: Serve, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            with locks.lock(f"product_{id}", timeout=0):
                return HttpResponse("sold")

        serve(view)
        assert post("/product/1", how).content == b"sold"
        with locks.lock("product_1"), caplog.at_level(logging.INFO, "distlock"):
            response = post("/product/1", how)
        assert (response.status_code, response.json()["code"]) == (423, "lock_contended")
        assert response["Retry-After"] == "1"
        assert re.search(r"test_middleware\..*view answered 423: The lock 'product_1'", caplog.text)

    def test_one_that_was_lost_inside_its_block_is_no_invitation_to_try_again(self, serve: Serve) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            with locks.lock(f"product_{id}"):
                # What it has done may stand, and its lock is gone.
                locks["default"].close()
            return HttpResponse("sold")

        serve(view)
        response = post("/product/1", "wsgi")
        assert (response.status_code, response.json()["code"]) == (500, "lock_lost_inside")
        assert "Retry-After" not in response

    def test_an_async_view_is_answered(self, serve: Serve) -> None:
        async def view(request: HttpRequest, id: int) -> HttpResponse:
            async with locks.lock(f"product_{id}", timeout=0):
                return HttpResponse("sold")

        serve(view)
        assert post("/product/1", "asgi").content == b"sold"
        with locks.lock("product_1"):
            assert post("/product/1", "asgi").status_code == 423

    @pytest.mark.parametrize(
        ("error", "code", "level"),
        [
            (distlock.TooManyWaiters, "lock_queue_full", logging.DEBUG),
            (distlock.BackendUnavailable, "lock_backend_unavailable", logging.WARNING),
            (distlock.LockLost, "lock_lost", logging.ERROR),
        ],
    )
    def test_every_other_lock_error_is_answered(
        self,
        serve: Serve,
        error: type[distlock.LockError],
        code: str,
        level: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            raise error("as raised by a lock")

        caplog.set_level(logging.DEBUG, "distlock")
        response = serve(view).post("/product/1")
        assert (response.status_code, response.json()["code"]) == (503, code)
        assert [record.levelno for record in caplog.records if "answered 503" in record.message] == [level]

    @pytest.mark.django_db(transaction=True)
    def test_it_is_rolled_back_before_it_is_answered(
        self, serve: Serve, atomic_requests: None, log: Log
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            with locks.lock("printer", timeout=0, in_transaction=True):
                return HttpResponse()

        client = serve(view)
        with locks.lock("printer"):
            assert client.post("/product/1").status_code == 423
        assert log == ["rollback-"]

    @pytest.mark.parametrize("error", [distlock.ConfigurationError, distlock.InvalidName, ZeroDivisionError])
    def test_what_the_site_has_to_mend_stays_an_error(self, serve: Serve, error: type[Exception]) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            raise error

        client = serve(view)
        with pytest.raises(error):
            client.post("/product/1")
        client.raise_request_exception = False
        assert client.post("/product/1").status_code == 500


def test_without_the_middleware_lock_errors_are_errors(serve: Serve) -> None:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        with locks.lock("product_1", timeout=0):
            return HttpResponse()

    client = serve(view)
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    with pytest.raises(distlock.LockTimeout):
        client.post("/product/1")
    grant.release()


class TestServerTiming:
    METRICS = r"lock-wait;dur=\d+\.\d, lock-held;dur=\d+\.\d"

    @pytest.fixture(autouse=True)
    def timing(self, settings: Any, middleware: None) -> None:
        settings.DISTLOCK_SERVER_TIMING = True

    @pytest.mark.parametrize("how", ["wsgi", "asgi"])
    def test_an_answer_says_how_long_it_waited_and_held(self, serve: Serve, how: str) -> None:
        serve(distributed_lock("product_<id>")(lambda request, id: HttpResponse()))
        assert re.fullmatch(self.METRICS, post("/product/1", how)["Server-Timing"])

    def test_a_refusal_says_how_long_it_waited(self, serve: Serve) -> None:
        client = serve(distributed_lock("product_<id>", timeout=0)(lambda request, id: HttpResponse()))
        with locks.lock("product_1"):
            response = client.post("/product/1")
        assert response.status_code == 423
        assert re.fullmatch(r"lock-wait;dur=\d+\.\d", response["Server-Timing"])

    def test_it_stands_behind_what_the_view_says(self, serve: Serve) -> None:
        @distributed_lock("product_<id>")
        def view(request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse(headers={"Server-Timing": "db;dur=3"})

        assert re.fullmatch(f"db;dur=3, {self.METRICS}", serve(view).post("/product/1")["Server-Timing"])

    def test_a_guard_that_asked_nobody_says_nothing(self, serve: Serve) -> None:
        inner = distributed_lock("product_<id>")(lambda request, id: HttpResponse())
        header = serve(distributed_lock("product_<id>")(inner)).post("/product/1")["Server-Timing"]
        assert re.fullmatch(self.METRICS, header)

    def test_views_without_a_guard_and_sites_that_did_not_ask_say_nothing(
        self, serve: Serve, settings: Any
    ) -> None:
        guarded = distributed_lock("product_<id>")(lambda request, id: HttpResponse())
        client = serve([path("a/<int:id>", lambda request, id: HttpResponse()), path("b/<int:id>", guarded)])
        assert "Server-Timing" not in client.post("/a/1")
        settings.DISTLOCK_SERVER_TIMING = False
        assert "Server-Timing" not in client.post("/b/1")


@pytest.mark.django_db(transaction=True)
class TestLocksInsideTransactions:
    def test_under_atomic_requests_it_is_refused_with_the_lines_to_write(
        self, serve: Serve, atomic_requests: None
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            with locks.lock("product_1"):
                pytest.fail("entered")

        line = view.__code__.co_firstlineno + 1
        where = rf"^{re.escape(__file__)}, line {line}: this code would be locked on 'product_1'"
        with pytest.raises(ConfigurationError, match=rf"{where}.*before its COMMIT.*@distributed_lock"):
            serve(view).post("/product/1")

    @pytest.mark.parametrize(
        "lock",
        [
            lambda: locks.lock("product_1"),
            lambda: locks.rlock("product_1"),
            lambda: locks["default"].lock("product_1", "product_2"),
            lambda: locks["default"].rlock("product_1"),
        ],
        ids=["lock", "rlock", "several names of an alias", "rlock of an alias"],
    )
    def test_every_way_to_take_it_is_refused(self, lock: Callable[[], distlock.Lock]) -> None:
        made_before = lock()
        with transaction.atomic():
            for one in (made_before, lock()):
                with pytest.raises(ConfigurationError, match="in_transaction=True"):
                    one.acquire()
                assert not one.locked()
        with made_before, transaction.atomic():
            assert lock().locked()

    def test_a_lock_that_has_nothing_to_do_with_the_database_may_say_so(self) -> None:
        with (
            transaction.atomic(),
            locks.lock("printer", in_transaction=True),
            locks.rlock("scanner", in_transaction=True),
        ):
            assert locks.lock("printer").locked()
            assert locks.rlock("scanner").locked()

    def test_it_is_the_same_lock(self) -> None:
        with locks.lock("printer"), transaction.atomic():
            assert locks.lock("printer", in_transaction=True).acquire(blocking=False) is None

    def test_with_the_dummy_it_is_refused_too(self, settings: Any) -> None:
        settings.DISTLOCK = "dummy://"
        with transaction.atomic(), pytest.raises(ConfigurationError, match="in_transaction=True"):
            locks.lock("product_1").acquire()
        with transaction.atomic(), locks.lock("product_1", in_transaction=True):
            pass


@pytest.mark.django_db
def test_the_transaction_of_a_test_case_does_not_count() -> None:
    assert connection.in_atomic_block
    with locks.lock("product_1"):
        pass
