"""Answers to releases, which nobody waits for: they are read soon after, or with the next request."""

from __future__ import annotations

import math
from collections.abc import Callable

from distlock.backends.base import Backend
from distlock.backends.optional import Posts
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.steps import Steps
from distlock.errors import BackendUnavailable

#: Seconds after which an answer is read that nobody has read before, …
SOON = 0.08
#: … and how long it is waited for there: the keeper has holds to renew.
PATIENCE = 0.01


class Answers:
    """The keeper plays its rounds, in its own."""

    def __init__(self, section: CriticalSection, backend: Backend, now: Callable[[], float]) -> None:
        self._section = section
        self._backend = backend if isinstance(backend, Posts) else None
        self._now = now
        self.forget()

    def forget(self) -> None:
        """None is awaited: at first, after a close, and in a forked child."""
        #: When the next round is; ``inf``: nothing is awaited.
        self.due = math.inf
        #: A round is being played.
        self._reading = False

    @property
    def awaited(self) -> bool:
        """Whether there may be one that nobody has read."""
        return self._reading or self.due != math.inf

    def tick(self) -> Steps[None]:
        """A round."""
        with self._section.mutex:
            now = self._now()
            if self._backend is None or now < self.due:
                return
            self.due, self._reading = math.inf, True
        settled = False
        try:
            settled = yield Call(self._backend.settle, until=now + PATIENCE)
        except BackendUnavailable:
            pass
        finally:
            with self._section.mutex:
                self._reading = False
                if not settled:
                    self.due = min(self.due, self._now() + SOON)
