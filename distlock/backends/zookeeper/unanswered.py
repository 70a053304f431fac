"""Deletions of our nodes that were sent, and whose answers are read later: hardly anybody needs them.

A session's requests are carried out in order, so what is asked next on it comes after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete

from distlock import clock
from distlock.backends.base import Ask
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


@dataclass(slots=True, eq=False)
class Posted:
    ask: Ask
    told: Callable[[bool | None], None]
    #: Of kazoo.
    result: Any


class Unanswered:
    """Those of one session. Threads share it."""

    def __init__(self, session: Session, strays: Strays) -> None:
        self._session = session
        self._strays = strays
        #: By key: a process has one hold of a key at a time.
        self._posted: dict[str, Posted] = {}

    def post(self, path: str, ask: Ask, told: Callable[[bool | None], None]) -> None:
        """Delete the node at *path*. *told*: see `distlock.backends.base.Posts`."""
        if (before := self._posted.get(ask.key)) is not None:
            # Answered by now: the node at *path* came after it.
            self._look_at(before)
        self._posted[ask.key] = Posted(ask, told, self._session.wire.submit(Delete(path, -1)))

    def lost(self, key: str) -> Ask | None:
        """Whose node may still be there although it was deleted, as far as is known by now."""
        posted = self._posted.get(key)
        if posted is None or not posted.result.ready():
            return None
        return posted.ask if self._look_at(posted) is None else None

    def finish(self, key: str, deadline: float) -> None:
        """Wait for the answer of *key* until *deadline*: what is asked next is asked in another session."""
        posted = self._posted.get(key)
        if posted is not None:
            posted.result.wait(max(0.0, deadline - clock.now()))

    def settle(self, deadline: float) -> bool:
        """See `distlock.backends.base.Posts`."""
        for key, posted in list(self._posted.items()):
            self.finish(key, deadline)
            if posted.result.ready():
                self._look_at(posted)
        return not self._posted

    def _look_at(self, posted: Posted) -> bool | None:
        """What the answer is, and tell it."""
        ours: bool | None = True
        try:
            posted.result.get(block=False)
        except NoNodeError:
            ours = False
        except (KazooException, KazooTimeoutError):
            ours = None
            self._strays.add(posted.ask.token, posted.ask.key)
        if self._posted.get(posted.ask.key) is posted:
            self._posted.pop(posted.ask.key, None)
            if not ours:
                posted.told(ours)
        return ours
