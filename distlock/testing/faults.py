"""Faults on the way to a lock service, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distlock.errors import BackendUnavailable

#: The requests whose replies can be lost.
REQUESTS = ("request", "cancel", "renew", "release", "raise_fence", "locked")
#: The methods of backends that are `distlock.backends.latches.Latches`.
OF_LATCHES = ("make_latch", "count_latch_down", "delete_latch", "look_at_latches")


class Faulty:
    """From now on the next replies to *backend* can be lost, after the lock service did what it was asked."""

    def __init__(self, backend: Any) -> None:
        #: Method name -> how many of its next replies are lost.
        self.lose_replies: dict[str, int] = {}
        #: Method name -> what others do before its caller learns that a reply is lost, once.
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
            # This thread is in the middle of a call, and can make no other one.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(others).result()
