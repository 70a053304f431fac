"""A request for a lock is for the grants that are out, and the engine hears of it as often as it is told."""

from __future__ import annotations

import logging
import threading

import pytest

import distlock
from distlock.backends.base import Capabilities
from distlock.testing.waits import ask_of, engine_of, wait_until
from tests.backend_class import backend_class

MemoryBackend = backend_class("memory://")

HERE = "tests.engine.test_revocation"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


class Silent(MemoryBackend):
    capabilities = Capabilities(lease=True, fence=True)


def test_what_is_told_of_a_hold_that_is_over_is_told_to_nobody(url: str) -> None:
    locks = distlock.connect(url)
    first = locks.lock("a").acquire()
    assert first is not None
    old = ask_of(first)
    first.release()
    with locks.lock("a") as second:
        engine_of(locks).sink.release_requested(old.key, old.token)
        engine_of(locks).sink.release_requested(":nobody", old.token)
        assert not second.release_requested
    locks.close()


def test_both_callbacks_are_called_once_for_a_grant(url: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    locks = distlock.connect(url, on_release_requested=lambda grant: told.append("client"))
    with (
        caplog.at_level(logging.INFO, "distlock"),
        locks.lock("a", on_release_requested=lambda grant: told.append("lock")) as grant,
    ):
        ask = ask_of(grant)
        for _ in range(3):
            assert locks.request_release("a")
            engine_of(locks).sink.release_requested(ask.key, ask.token)
        wait_until(lambda: len(told) == 2, "both are called")
    locks.close()
    assert told == ["lock", "client"]
    assert [one for one in caplog.messages if "wanted back" in one] == [
        f"The lock 'a' (fence {grant.fence.epoch}:{grant.fence.number}) is wanted back."
    ]


def test_where_no_thread_can_be_started_the_grant_knows_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    locks = distlock.connect(url)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with locks.lock("a", on_release_requested=lambda grant: None) as grant:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert locks.request_release("a")
        assert grant.release_requested
    assert "Nobody was told that 'a' is wanted back: can't start new thread" in caplog.text
    locks.close()


def test_a_backend_that_tells_nobody_is_refused_where_it_is_asked_to(url: str) -> None:
    locks = distlock.connect(url, backend=f"{HERE}.Silent")
    refused = r"can't be had from the backend 'Silent': it does not tell a holder"
    with pytest.raises(distlock.ConfigurationError, match=rf"^request_release\(\) {refused}"):
        locks.request_release("a")
    with pytest.raises(distlock.ConfigurationError, match=rf"^lock\(on_release_requested=…\) {refused}"):
        locks.lock("a", on_release_requested=print)
    locks.close()


def test_a_turn_ends_with_the_grant_that_is_wanted_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those of this process would have the lock before the one that wants it."""
    monkeypatch.setattr("distlock.engine.hold.TURN", 60.0)
    locks, other = distlock.connect(url), distlock.connect(url)
    first = locks.lock("a").acquire()
    assert first is not None
    order: list[str] = []

    def take(client: distlock.Locks, who: str) -> None:
        with client.lock("a", timeout=60):
            order.append(who)

    threads = []
    for client, who in ((other, "other"), (locks, "own")):
        threads.append(threading.Thread(target=take, args=(client, who)))
        threads[-1].start()
        waits = engine_of(client)
        wait_until(lambda waits=waits: waits.queues.waiting == 1, "it waits")  # type: ignore[misc]
        if who == "other":
            wait_until(lambda: other.inspect("a").waiting == 1, "it stands in line")
    assert other.request_release("a")
    first.release()
    for thread in threads:
        thread.join(60)
    assert order == ["other", "own"]
    locks.close()
    other.close()
