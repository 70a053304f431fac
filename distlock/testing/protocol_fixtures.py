"""Contenders for the conformance kit: backends that tests call directly, without an engine."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.base import PERMIT, READ, Acquired, Backend, LockRequest, Queued
from distlock.backends.factory import create

#: A ttl that no test outlives, seconds.
LONG = 60.0


def ask(key: str, ttl: float = LONG, wait: bool = True, span: int = 1, **more: Any) -> LockRequest:
    return LockRequest(key, secrets.token_hex(16), ttl, span, wait, **more)


def read(key: str, ttl: float = LONG, wait: bool = True) -> LockRequest:
    return ask(key, ttl, wait, mode=READ)


def permit(key: str, limit: int, permits: int = 1, ttl: float = LONG, wait: bool = True) -> LockRequest:
    return ask(key, ttl, wait, mode=PERMIT, limit=limit, permits=permits)


class RecordingSink:
    """A sink that records the events of its backend, and lets a test wait for a notification."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: The key of each notification.
        self.notified_keys: list[str] = []
        #: Key, token and number of each pushed hold, and the moment after which it was granted.
        self.hand_offs: list[tuple[str, str, int, float]] = []
        self.losses: list[tuple[str, str]] = []
        #: Key and token of each request to release.
        self.requests: list[tuple[str, str]] = []
        #: How often notifications may have been missed.
        self.missed = 0
        self.reconnects = 0

    def notified(self, key: str) -> None:
        with self._changed:
            self.notified_keys.append(key)
            self._changed.notify_all()

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        with self._changed:
            self.hand_offs.append((key, token, number, sent))
        self.notified(key)

    def lost(self, key: str, token: str) -> None:
        with self._changed:
            self.losses.append((key, token))
            self._changed.notify_all()

    def release_requested(self, key: str, token: str) -> None:
        with self._changed:
            self.requests.append((key, token))
            self._changed.notify_all()

    def missed_notifications(self) -> None:
        with self._changed:
            self.missed += 1
            self._changed.notify_all()

    def reconnected(self) -> None:
        with self._changed:
            self.reconnects += 1
            self._changed.notify_all()

    def wait_for_notification(self, key: str, timeout: float = 5.0) -> bool:
        """Return whether a notification for *key* has come, or comes within *timeout* seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: key in self.notified_keys, timeout)


class Contender:
    """A backend and its sink, which stand for one process."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.sink = RecordingSink()
        backend.open(self.sink)

    def held(self, ask: LockRequest) -> Acquired:
        answer = self.backend.request(ask)
        assert isinstance(answer, Acquired), f"expected Acquired, got {answer}"
        return answer

    def queued(self, ask: LockRequest) -> Queued:
        answer = self.backend.request(ask)
        assert isinstance(answer, Queued), f"expected Queued, got {answer}"
        return answer

    def queue_and_listen(self, ask: LockRequest) -> LockRequest:
        """Queue *ask*, and return it.

        Send it twice: a lock service may learn only by the second request where to send notifications.
        """
        self.queued(ask)
        self.queued(ask)
        return ask

    def until_held(self, ask: LockRequest, patience: float = 10.0) -> Acquired:
        """Repeat *ask* after the poll interval of each answer, until it is granted. Return that answer.

        Fail after *patience* seconds.
        """
        polls = threading.Event()
        rest = patience
        while True:
            answer = self.backend.request(ask)
            if isinstance(answer, Acquired):
                return answer
            assert isinstance(answer, Queued)
            assert rest > 0, f"not held within {patience:g} seconds of polling"
            pause = min(answer.poll, rest)
            polls.wait(pause)
            rest -= pause


class ProtocolFixtures:
    """Fixtures for the parts of the kit that call a backend's methods directly.

    The methods after the fixtures are tests, to which each part passes requests of its modes. In them *one*
    holds *first*, *two* waits with *second*, and *three* waits with *third*.
    """

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        return {}

    @pytest.fixture
    def key(self) -> str:
        return f"kit:product_{secrets.token_hex(4)}"

    @pytest.fixture
    def contender(self, url: str, options: dict[str, Any]) -> Iterator[Callable[[], Contender]]:
        made: list[Contender] = []

        def make() -> Contender:
            made.append(Contender(create(url, **options)))
            return made[-1]

        yield make
        for one in made:
            one.backend.close()

    @pytest.fixture
    def one(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def two(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def three(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def four(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    def polls_take_no_second_place(
        self,
        one: Contender,
        two: Contender,
        three: Contender,
        first: LockRequest,
        second: LockRequest,
        third: LockRequest,
    ) -> None:
        one.held(first)
        for _ in range(3):
            two.queued(second)
        three.queued(third)
        one.backend.release(first)
        two.held(second)
        two.backend.release(second)
        three.held(third)
        assert three.backend.release(third)
        assert not three.backend.locked(third.key)

    def a_late_cancel_keeps_the_hold(
        self,
        one: Contender,
        two: Contender,
        three: Contender,
        first: LockRequest,
        second: LockRequest,
        third: LockRequest,
    ) -> None:
        one.held(first)
        two.queued(second)
        one.backend.release(first)
        assert two.backend.cancel(second) is True
        three.queued(third)
        two.held(second)

    def nobody_waits_behind_who_closed(
        self,
        one: Contender,
        two: Contender,
        three: Contender,
        first: LockRequest,
        second: LockRequest,
        third: LockRequest,
    ) -> None:
        one.held(first)
        two.queued(second)
        three.queued(third)
        two.backend.close()
        one.backend.release(first)
        three.until_held(third)
