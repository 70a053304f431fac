"""Tokens that nobody here wants any more, while the lock service may still think that we do.

They leave its queue, or their holds are given back, as soon as it answers. A request that was sent and never
answered may be carried out after that: a server that stood still finds it, and the cancel, on connections
that it reads in any order. So such a token is looked after once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from distlock.backends.base import Ask, Backend
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.steps import Steps
from distlock.errors import BackendUnavailable, LockError

#: Seconds until the second look.
AGAIN = 1.0


@dataclass(eq=False)
class _Token:
    ask: Ask
    next_try: float
    give_up: float
    #: It was cleared up, and this is the second look.
    again: bool = False


class Retired:
    """How many wait for their first look is its length."""

    def __init__(self, section: CriticalSection, backend: Backend, now: Callable[[], float]) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self.forget()

    def __len__(self) -> int:
        return sum(not token.again for token in self._tokens)

    def forget(self) -> None:
        """At first, and in a forked child."""
        self._tokens: list[_Token] = []

    def add(self, ask: Ask) -> None:
        """Under the mutex, as `due`."""
        now = self._now()
        # Where there is a lease, what could not be cleared up ends by itself.
        give_up = now + 2 * ask.ttl if self._backend.capabilities.lease else math.inf
        self._tokens.append(_Token(ask, now, give_up))

    def due(self) -> float:
        """When the next round is; ``inf`` if there are none."""
        return min((token.next_try for token in self._tokens), default=math.inf)

    def clear_up(self, until: Callable[[], float], last: bool = False) -> Steps[None]:
        """A round. *until*: tells when it has to end; slow answers to these may not cost a lease.

        *last*: the client is being closed, and there are no second looks.
        """
        with self._section.mutex:
            now = self._now()
            if last:
                self._tokens = [token for token in self._tokens if not token.again]
            due = [token for token in self._tokens if token.next_try <= now]
        for token in due:
            with self._section.mutex:
                if self._now() >= until():
                    return
            try:
                if (yield Call(self._backend.cancel, token.ask)):
                    yield Call(self._backend.release, token.ask)
            except BackendUnavailable:
                self._put_off(due)
                return
            except LockError:
                pass  # It never was a service that could hold anything.
            with self._section.mutex:
                if token.ask.unanswered and not (token.again or last):
                    token.again, token.next_try = True, self._now() + AGAIN
                # Two threads that close the client at once may both have come here.
                elif token in self._tokens:
                    self._tokens.remove(token)

    def _put_off(self, due: list[_Token]) -> None:
        """The service is away: trying the others as well would keep us from telling losses in time."""
        with self._section.mutex:
            now = self._now()
            for token in due:
                token.next_try = now + min(1.0, token.ask.ttl / 3)
            self._tokens = [token for token in self._tokens if token.next_try < token.give_up]
