"""Fixtures with clients for the conformance kit, and `Faulty`, which loses replies of a lock service."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock.errors import BackendUnavailable
from distlock.testing.waits import LONG, PATIENCE

#: The methods of all backends whose replies `Faulty` can lose.
REQUESTS = ("request", "cancel", "renew", "release", "raise_fence", "locked")
#: Such methods of backends that are `distlock.backends.latches.Latches`.
OF_LATCHES = ("make_latch", "count_latch_down", "delete_latch", "look_at_latches")

Connect = Callable[..., distlock.Locks]


class ConformanceFixtures:
    """Fixtures for the parts of the kit that use clients, as `distlock.connect` returns them."""

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return keyword arguments for `distlock.connect`."""
        return {}

    @pytest.fixture(autouse=True)
    def _awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let callers whose time-out is over wait for the last answer for up to `PATIENCE` seconds.

        Otherwise, tests with short time-outs would fail on a busy machine, which may be too slow to open the
        first connection or to cancel.
        """
        for module in ("engine.engine", "locks.engine_namespace", "locks.multi_lock", "locks.latch_waits"):
            monkeypatch.setattr(sys.modules[f"distlock.{module}"], "REPLY_GRACE", PATIENCE)

    @pytest.fixture
    def name(self) -> str:
        return f"product_{secrets.token_hex(4)}"

    @pytest.fixture
    def connect(self, url: str, options: dict[str, Any]) -> Iterator[Callable[..., distlock.Locks]]:
        made: list[distlock.Locks] = []

        def connect(**more: Any) -> distlock.Locks:
            settings = {"prefix": "kit", "timeout": PATIENCE, "ttl": LONG, **options, **more}
            made.append(distlock.connect(url, **settings))
            return made[-1]

        yield connect
        for one in made:
            one.close()

    @pytest.fixture
    def locks(self, connect: Callable[..., distlock.Locks]) -> distlock.Locks:
        return connect()

    @pytest.fixture
    def other(self, connect: Callable[..., distlock.Locks]) -> distlock.Locks:
        """Return a second client, which stands for another process."""
        return connect()

    @pytest.fixture
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(64) as pool:
            yield pool


class Faulty:
    """A planted fault: *backend* loses replies to calls that the lock service has carried out."""

    def __init__(self, backend: Any) -> None:
        #: How many of the next replies are lost, by method.
        self.lose_replies: dict[str, int] = {}
        #: A function that runs once before the caller learns of a lost reply, by method.
        self.meanwhile: dict[str, Callable[[], object]] = {}
        for method in (*REQUESTS, *OF_LATCHES):
            if not hasattr(backend, method):
                continue
            setattr(backend, method, self._on_the_way(method, getattr(backend, method)))

    def _on_the_way(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            answer = function(*arguments)
            if self.lose_replies.get(method, 0) > 0:
                self.lose_replies[method] -= 1
                self._let_happen(self.meanwhile.pop(method, None))
                raise BackendUnavailable(f"The reply to {method} was lost (a planted fault).")
            return answer

        return call

    @staticmethod
    def _let_happen(others: Callable[[], object] | None) -> None:
        if others is not None:
            # Use another thread: this one is inside a call of the backend, and can't make a second call.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(others).result()
