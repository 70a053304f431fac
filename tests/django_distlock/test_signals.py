from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view

from distlock.errors import LockTimeout
from distlock.web.guard_marks import Guarded
from distlock.web.guard_options import GuardOptions
from django_distlock import distributed_lock, locks
from django_distlock.clients.client import Client as LockClient
from django_distlock.guarding.guarded_call import observer_for
from django_distlock.signals import (
    lock_acquired,
    lock_contended,
    lock_lost,
    lock_refused,
    lock_release_requested,
    lock_released,
)

SIGNALS = {"acquired": lock_acquired, "refused": lock_refused, "released": lock_released, "lost": lock_lost}


@distributed_lock("product_<id>", timeout=0)
def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


def plain(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


class Heard(list[tuple[str, dict[str, Any]]]):
    """The signals that were sent, with their arguments."""

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self]

    def about(self, word: str) -> dict[str, Any]:
        (arguments,) = (arguments for heard, arguments in self if heard == word)
        return arguments


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()

    def hear(word: str) -> Callable[..., None]:
        return lambda signal, **arguments: heard.append((word, arguments))

    receivers = {word: hear(word) for word in SIGNALS}
    for word, signal in SIGNALS.items():
        signal.connect(receivers[word])
    yield heard
    for word, signal in SIGNALS.items():
        signal.disconnect(receivers[word])


def test_a_guard_that_ran_has_acquired_and_released(serve: Callable[..., Client], heard: Heard) -> None:
    serve(buy).post("/product/1")
    assert heard.words == ["acquired", "released"]
    for word, seconds in (("acquired", "waited"), ("released", "held")):
        about = heard.about(word)
        assert about["sender"] is buy
        assert (about["names"], about["alias"]) == (("product_1",), "default")
        assert about["where"].endswith("test_signals.buy")
        assert about["request"].path == "/product/1"
        assert about["grant"].names == ("product_1",)
        assert about[seconds] >= 0
    assert heard.about("released")["grant"].released


def test_a_guard_that_was_kept_out_was_refused(serve: Callable[..., Client], heard: Heard) -> None:
    client = serve(buy)
    with locks.lock("product_1"):
        client.post("/product/1")
    assert heard.words == ["refused"]
    about = heard.about("refused")
    assert about["sender"] is buy
    assert about["names"] == ("product_1",)
    assert isinstance(about["error"], LockTimeout)
    assert about["waited"] >= 0


def test_a_rule_sends_for_the_view_that_the_site_knows(rules: Callable[..., Client], heard: Heard) -> None:
    rules(plain).post("/product/1")
    assert heard.words == ["acquired", "released"]
    assert heard.about("acquired")["sender"] is plain


class Show(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")


@distributed_lock("product_<id>")
class Buy(Show): ...


@distributed_lock("product_<id>")
@api_view(["POST"])
def buy_by_api(request: Any, id: int) -> HttpResponse:
    return HttpResponse("sold")


@pytest.mark.parametrize("cls", [Buy, Show])
def test_for_a_class_it_is_the_class(cls: type[View], rules: Callable[..., Client], heard: Heard) -> None:
    rules(cls.as_view()).post("/product/1")
    assert heard.words == ["acquired", "released"]
    assert heard.about("acquired")["sender"] is cls


def test_for_an_api_view_it_is_the_function(serve: Callable[..., Client], heard: Heard) -> None:
    assert serve(buy_by_api).post("/product/1").content == b"sold"
    assert heard.about("acquired")["sender"] is buy_by_api


@pytest.mark.parametrize("name", ["post", "dispatch"])
def test_for_a_decorated_method_it_is_the_method(
    serve: Callable[..., Client], heard: Heard, name: str
) -> None:
    cls = method_decorator(distributed_lock("product_<id>"), name=name)(
        type("Buy", (Show,), {"post": Show.post})
    )
    client = serve(cls.as_view())
    client.post("/product/1")
    assert heard.words == ["acquired", "released"]
    # Django makes the guard anew for each request: a receiver connected to it would hear nothing.
    assert heard.about("acquired")["sender"] is getattr(cls, name)


def test_a_plain_function_has_no_request(heard: Heard) -> None:
    sell = distributed_lock("product_<id>")(lambda id: None)
    sell(1)
    assert heard.words == ["acquired", "released"]
    assert heard.about("acquired")["sender"] is sell
    assert heard.about("acquired")["request"] is None


def test_an_async_view_sends_them_too(serve: Callable[..., Client], heard: Heard) -> None:
    @distributed_lock("product_<id>")
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse()

    serve(view)
    async_to_sync(AsyncClient().post)("/product/1")
    assert heard.words == ["acquired", "released"]


def test_a_receiver_may_be_for_one_view_only(serve: Callable[..., Client]) -> None:
    names: list[str] = []

    def note(names_of: list[str] = names, **about: Any) -> None:
        names_of.extend(about["names"])

    lock_acquired.connect(note, sender=buy)
    distributed_lock("shop")(lambda: None)()
    serve(buy).post("/product/1")
    lock_acquired.disconnect(note, sender=buy)
    assert names == ["product_1"]


def test_a_receiver_that_fails_is_logged_and_hurts_nobody(
    serve: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**about: Any) -> None:
        raise ZeroDivisionError

    lock_acquired.connect(fail)
    with caplog.at_level(logging.ERROR):
        assert serve(buy).post("/product/1").content == b"sold"
    lock_acquired.disconnect(fail)
    assert "fail" in caplog.text
    assert not locks.lock("product_1").locked()


def test_an_async_receiver_is_refused() -> None:
    async def receive(**about: Any) -> None: ...

    with pytest.raises(TypeError, match="receive is async, and the signals of locks call plain functions"):
        lock_acquired.connect(receive)


def test_a_lost_lock_is_told_whoever_held_it(settings: Any) -> None:
    told = threading.Event()
    arguments: dict[str, Any] = {}

    def note(**about: Any) -> None:
        arguments.update(about)
        told.set()

    lock_lost.connect(note)
    settings.DISTLOCK = {"default": {"LOCATION": "memory://lost", "MAX_HOLD": 0.05, "TTL": 0.1}}
    try:
        grant = locks.lock("product_1").acquire()
        assert told.wait(10)
    finally:
        lock_lost.disconnect(note)
    assert (arguments["sender"], arguments["alias"]) == (LockClient, "default")
    assert (arguments["names"], arguments["grant"]) == (("product_1",), grant)
    assert arguments["why"]


def test_nobody_is_told_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in (lock_acquired, lock_refused, lock_released):
        # The panel of the debug toolbar listens from its import on.
        monkeypatch.setattr(signal, "receivers", [])
    guarded = Guarded(plain, GuardOptions(["product_<id>"]))
    assert observer_for(guarded, None) is None
    assert observer_for(guarded, HttpRequest()) is None


@pytest.mark.parametrize("backend", ["memory", "database"])
@pytest.mark.django_db(transaction=True)
def test_a_guard_that_waits_is_contended(serve: Callable[..., Client], settings: Any, backend: str) -> None:
    """Also where the lock is a row, for which callers of one process wait in the process."""
    if backend == "database":
        settings.DISTLOCK = {"default": {"BACKEND": "database", "TIMEOUT": 60}}
    waits = threading.Event()
    heard: list[dict[str, Any]] = []

    @distributed_lock("product_<id>", timeout=60)
    def patient(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    def hear(sender: object, **about: Any) -> None:
        heard.append({"sender": sender, **about})
        waits.set()

    lock_contended.connect(hear)
    try:
        client = serve(patient)

        def buy() -> None:
            client.post("/product/1")
            connections.close_all()

        with locks.lock("product_1"):
            thread = threading.Thread(target=buy)
            thread.start()
            assert waits.wait(60)
        thread.join(60)
    finally:
        lock_contended.disconnect(hear)
    (about,) = heard
    assert about["sender"] is patient
    assert (about["names"], about["alias"], about["holder"]) == (("product_1",), "default", None)
    assert about["request"].path == "/product/1"


def test_a_lock_that_is_wanted_back_is_told() -> None:
    told = threading.Event()
    heard: list[dict[str, Any]] = []

    def hear(sender: object, **about: Any) -> None:
        heard.append({"sender": sender, **about})
        told.set()

    lock_release_requested.connect(hear)
    try:
        with locks.lock("product_1") as grant:
            assert locks["default"].request_release("product_1")
            assert told.wait(60)
            assert grant.release_requested
    finally:
        lock_release_requested.disconnect(hear)
    (about,) = heard
    assert about["sender"] is LockClient
    assert (about["names"], about["alias"]) == (("product_1",), "default")
    assert about["grant"] == grant
