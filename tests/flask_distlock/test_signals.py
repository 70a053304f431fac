from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from flask_distlock import DistLock, distributed_lock, signals


@pytest.fixture
def app(app: Flask) -> Flask:
    @app.post("/<int:id>")
    @distributed_lock("product_<id>", timeout=0)
    def buy(id: int) -> str:
        return "sold"

    return app


@pytest.fixture
def told(app: Flask) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    receivers = []
    for signal in (signals.lock_acquired, signals.lock_refused, signals.lock_released):

        def receiver(sender: Flask, signal: Any = signal, **what: Any) -> None:
            assert sender is app
            found.append((signal.name, what))

        receivers.append(receiver)
        signal.connect(receiver, app)
    yield found
    for signal, receiver in zip(
        (signals.lock_acquired, signals.lock_refused, signals.lock_released), receivers, strict=True
    ):
        signal.disconnect(receiver, app)


def test_a_guard_tells_when_it_gets_its_lock_and_gives_it_back(app: Flask, told: list[Any]) -> None:
    app.test_client().post("/1")
    (first, acquired), (second, released) = told
    assert (first, second) == ("lock-acquired", "lock-released")
    assert acquired["grant"] is released["grant"]
    assert acquired["grant"].names == acquired["names"] == released["names"] == ("product_1",)
    assert acquired["where"] == released["where"]
    assert acquired["where"].endswith("buy")
    assert 0 <= acquired["waited"] < 10
    assert 0 <= released["held"] < 10


def test_a_guard_tells_when_it_does_not_get_it(app: Flask, locks: DistLock, told: list[Any]) -> None:
    with app.app_context(), locks.lock("product_1"):
        app.test_client().post("/1")
    ((name, what),) = told
    assert (name, what["names"], what["alias"]) == ("lock-refused", ("product_1",), "default")
    assert isinstance(what["error"], TimeoutError)


def test_other_apps_are_not_heard(told: list[Any], make_app: Callable[..., Flask]) -> None:
    other = make_app()
    other.add_url_rule("/", "buy", distributed_lock("product_1")(lambda: "sold"))
    assert other.test_client().get("/").text == "sold"
    assert told == []


@pytest.mark.parametrize("name", ["lock_acquired", "lock_released"])
def test_a_receiver_that_raises_is_logged_and_changes_nothing(
    app: Flask, locks: DistLock, told: list[Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(sender: Flask, **what: Any) -> None:
        raise ZeroDivisionError

    signal = getattr(signals, name)
    with signal.connected_to(fail, app):
        assert app.test_client().post("/1").text == "sold"
    assert [name for name, _ in told] == ["lock-acquired", "lock-released"]
    (line,) = (record for record in caplog.records if "receiver of the signal" in record.message)
    assert line.levelno == logging.ERROR
    with app.app_context():
        assert not locks.lock("product_1").locked()


def test_an_async_receiver_is_refused(app: Flask) -> None:
    async def note(sender: Flask, **what: Any) -> None: ...

    with pytest.raises(TypeError, match="note is async"):
        signals.lock_acquired.connect(note, app)


def test_nobody_is_told_where_nobody_listens(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_distlock.guarding.request.send", lambda *args, **what: pytest.fail("told"))
    assert app.test_client().post("/1").text == "sold"


def test_the_loss_of_any_lock_is_told(make_app: Callable[..., Flask], locks: DistLock) -> None:
    # Nobody renews a holder after MAX_HOLD.
    app = make_app(DISTLOCK={"default": {"BACKEND": "memory", "TTL": 0.6, "MAX_HOLD": 0.5, "PREFIX": "lost"}})
    told: list[dict[str, Any]] = []
    lost = threading.Event()

    def note(sender: Flask, **what: Any) -> None:
        told.append({"sender": sender, **what})
        lost.set()

    with signals.lock_lost.connected_to(note, app), app.app_context():
        assert locks.lock("product_1").acquire()
        assert lost.wait(10)
    assert told[0]["sender"] is app
    assert (told[0]["alias"], told[0]["names"]) == ("default", ("product_1",))
    assert told[0]["why"]


def test_a_guard_that_waits_is_contended(app: Flask, locks: DistLock) -> None:
    waits, heard = threading.Event(), list[dict[str, Any]]()

    @app.post("/patient/<int:id>")
    @distributed_lock("product_<id>", timeout=60)
    def patient(id: int) -> str:
        return "sold"

    def hear(sender: Flask, **about: Any) -> None:
        heard.append(about)
        waits.set()

    with signals.lock_contended.connected_to(hear, app):
        with app.app_context(), locks.lock("product_1"):
            client = app.test_client()
            thread = threading.Thread(target=client.post, args=("/patient/1",))
            thread.start()
            assert waits.wait(60)
        thread.join(60)
    (about,) = heard
    assert (about["names"], about["alias"], about["holder"]) == (("product_1",), "default", None)
    assert about["where"].endswith("patient")


def test_a_lock_that_is_wanted_back_is_told(app: Flask, locks: DistLock) -> None:
    told, heard = threading.Event(), list[dict[str, Any]]()

    def hear(sender: Flask, **about: Any) -> None:
        assert sender is app
        heard.append(about)
        told.set()

    with (
        signals.lock_release_requested.connected_to(hear, app),
        app.app_context(),
        locks.lock("product_1") as grant,
    ):
        assert locks["default"].request_release("product_1")
        assert told.wait(60)
        assert grant.release_requested
    (about,) = heard
    assert (about["names"], about["alias"]) == (("product_1",), "default")
    assert about["grant"].fence == grant.fence
