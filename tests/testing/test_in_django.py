"""What Django's tests need of `race`, and the fakes in its `TestCase`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from unittest import mock

import pytest
from django.db import connection, connections, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.test import Client, SimpleTestCase, TestCase, override_settings
from django.urls import path

import distlock
from distlock.errors import ConfigurationError
from distlock.testing import backend_down, contended, held_locks, lose, race, taken_locks
from django_distlock import distributed_lock, locks
from django_distlock.models import FenceRow
from django_distlock.signals import lock_lost

counter = itertools.count()


def fails_for_some(request: HttpRequest) -> HttpResponse:
    if next(counter) % 2:
        raise RuntimeError("every other request")
    return HttpResponse("fine")


@distributed_lock("product_<id>")
def counts(request: HttpRequest, id: int) -> HttpResponse:
    FenceRow.objects.filter(name="stock").update(number=F("number") - 1)
    return HttpResponse(",".join(held_locks()))


@distributed_lock("product_<id>", fence=True)
def fenced(request: HttpRequest, id: int) -> HttpResponse:
    FenceRow.objects.filter(name="stock").update(number=F("number") - 1)
    return HttpResponse("sold")


@distributed_lock("product_<id>")
async def awaits(request: HttpRequest, id: int) -> HttpResponse:
    distlock.current_grant().check()
    return HttpResponse("sold")


class Urls:
    urlpatterns = [
        path("fails", fails_for_some),
        path("counts/<int:id>", counts),
        path("fenced/<int:id>", fenced),
        path("awaits/<int:id>", awaits),
    ]


@pytest.fixture(autouse=True)
def _urls(settings: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = Urls  # type: ignore[attr-defined]


@override_settings(ROOT_URLCONF=Urls)
class TestARace(SimpleTestCase):
    def test_each_call_has_the_errors_of_its_own_view(self) -> None:
        """Django tells them to every client that waits for an answer."""
        ended = race(lambda: self.client.get("/fails"), times=12)
        assert ended.statuses == {200: 6, "RuntimeError": 6}
        assert len({id(error) for error in ended.errors}) == 6

    def test_a_client_is_as_ever_when_the_race_is_over(self) -> None:
        race(lambda: self.client.get("/fails"), times=2)
        made = race(Client, times=2).answers
        for client in (self.client, *made):
            assert isinstance(client, Client)
            with self.assertRaisesMessage(RuntimeError, "every other request"):
                for _ in range(2):
                    client.get("/fails")


class TestInATransaction(TestCase):
    def test_there_is_nothing_to_race_for(self) -> None:
        with self.assertRaisesMessage(ConfigurationError, "inherit from TransactionTestCase"):
            race(lambda: self.client.post("/counts/1"))


@pytest.mark.django_db(transaction=True)
def test_a_database_in_memory_is_refused() -> None:
    def ask() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    with pytest.raises(ConfigurationError, match=r"'default', which is in memory.*\"TEST\": \{\"NAME\""):
        race(ask, times=2)
    # The test has its own still.
    assert not FenceRow.objects.exists()
    with transaction.atomic(), pytest.raises(ConfigurationError, match=r"django_db\(transaction=True\)"):
        race(ask, times=2)


@override_settings(ROOT_URLCONF=Urls, DISTLOCK={"default": {"LOCATION": "memory://fakes", "TIMEOUT": 3600}})
class TestTheFakes(TestCase):
    def setUp(self) -> None:
        self.row = FenceRow.objects.create(id="stock", name="stock", epoch=1, number=5, passed_at=0)

    def stock(self) -> int:
        self.row.refresh_from_db()
        return self.row.number

    def test_somebody_else_has_the_lock(self) -> None:
        for url in ("/counts/1", "/fenced/1", "/awaits/1"):
            with self.subTest(url), contended("product_1"):
                response = self.client.post(url)
                assert (response.status_code, response.json()["code"]) == (423, "lock_contended")
        assert self.stock() == 5
        with contended("product_1"):
            assert self.client.post("/counts/2").status_code == 200

    def test_the_lock_service_is_away(self) -> None:
        self.enterContext(backend_down())
        for url in ("/counts/1", "/fenced/1", "/awaits/1"):
            response = self.client.post(url)
            assert (response.status_code, response.json()["code"]) == (503, "lock_backend_unavailable")
        assert self.stock() == 5

    def test_a_fenced_view_goes_on_with_its_row_where_it_was_told_to(self) -> None:
        alias = {"LOCATION": "memory://fakes", "FENCE": True, "ON_BACKEND_DOWN": "run"}
        with override_settings(DISTLOCK={"default": alias}), backend_down():
            assert self.client.post("/fenced/1").status_code == 200
        assert self.stock() == 4

    def test_a_lost_lock_is_told_and_rolled_back(self) -> None:
        told = []

        def note(**words: object) -> None:
            told.append(words["names"])

        lock_lost.connect(note)
        self.addCleanup(lock_lost.disconnect, note)
        with lose("product_1"):
            response = self.client.post("/fenced/1")
        assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
        assert (self.stock(), told) == (5, [("product_1",)])
        with mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True), lose("product_1"):
            assert self.client.post("/counts/1").status_code == 503
        assert self.stock() == 5
        with lose("product_1"):
            assert self.client.post("/awaits/1").status_code == 503
        # It has no transaction, so that its change has happened.
        with lose("product_1"):
            assert self.client.post("/counts/1").status_code == 200
        assert self.stock() == 4

    def test_what_a_view_locks_is_seen(self) -> None:
        with taken_locks() as taken, locks.lock("shop"):
            assert self.client.post("/counts/7").content == b"product_7,shop"
            self.client.post("/awaits/8")
        assert taken == ["shop", "product_7", "product_8"]

    @override_settings(DISTLOCK={"default": {"BACKEND": "database"}})
    def test_locks_that_are_rows_can_be_taken_and_lost_and_are_never_away(self) -> None:
        with backend_down():
            assert self.client.post("/counts/7").content == b"product_7"
        with contended("product_7"):
            assert self.client.post("/counts/7").status_code == 423
        with lose():
            assert self.client.post("/counts/7").status_code == 503
        assert self.stock() == 4

    @override_settings(DISTLOCK="dummy://")
    def test_locks_that_do_nothing_can_be_taken_and_lost(self) -> None:
        assert self.client.post("/counts/7").content == b"product_7"
        with contended("product_7"):
            assert self.client.post("/counts/7").status_code == 423
        with lose():
            assert self.client.post("/fenced/7").status_code == 503
        assert self.stock() == 4


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    locks.close_all()
