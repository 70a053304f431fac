"""Faults on the way to a lock service, in front of any backend."""

from __future__ import annotations

from typing import Any

from distlock.errors import BackendUnavailable


class Faulty:
    """A backend whose next answers can be lost after the service did what it was asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.capabilities = backend.capabilities
        #: Method name -> how many of its next replies are lost.
        self.lose_replies: dict[str, int] = {}

    def __getattr__(self, method: str) -> Any:
        function = getattr(self._backend, method)

        def call(*arguments: Any) -> Any:
            answer = function(*arguments)
            if self.lose_replies.get(method, 0) > 0:
                self.lose_replies[method] -= 1
                raise BackendUnavailable(f"The reply to {method} was lost (a planted fault).")
            return answer

        return call
