"""Deletions of our nodes that were sent, and whose answers are read later: hardly anybody needs them.

A session's requests are carried out in order, so what is asked next on it comes after them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.zookeeper.answer import Answer
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


@dataclass(slots=True, eq=False)
class Posted:
    request: LockRequest
    told: Callable[[bool | None], None]
    answer: Answer


class Unanswered:
    """Those of one session. Threads share it."""

    def __init__(self, session: Session, strays: Strays) -> None:
        self._session = session
        self._strays = strays
        self._mutex = threading.Lock()
        #: By key. A process may have several holds of one, where it reads or has permits.
        self._posted: dict[str, tuple[Posted, ...]] = {}

    def post(self, path: str, request: LockRequest, told: Callable[[bool | None], None]) -> None:
        """Delete the node at *path*. *told*: see `distlock.backends.base.Posts`."""
        for before in self._answered(request.key):
            self._look_at(before)
        (answer,) = self._session.wire.submit([Delete(path, -1)])
        with self._mutex:
            self._posted[request.key] = (*self._posted.get(request.key, ()), Posted(request, told, answer))

    def lost(self, key: str) -> LockRequest | None:
        """Whose node may still be there although it was deleted, as far as is known by now."""
        for posted in self._answered(key):
            if self._look_at(posted) is None:
                return posted.request
        return None

    def finish(self, key: str, deadline: float) -> None:
        """Wait for the answers of *key* until *deadline*: what is asked next is asked in another session."""
        for posted in self._posted.get(key, ()):
            posted.answer.wait(deadline - clock.now())

    def awaits(self, key: str) -> bool:
        """Whether `finish` would wait."""
        return not all(posted.answer.ready() for posted in self._posted.get(key, ()))

    def settle(self, deadline: float) -> bool:
        """See `distlock.backends.base.Posts`."""
        for key in list(self._posted):
            self.finish(key, deadline)
            for posted in self._answered(key):
                self._look_at(posted)
        return not self._posted

    def _answered(self, key: str) -> list[Posted]:
        return [posted for posted in self._posted.get(key, ()) if posted.answer.ready()]

    def _look_at(self, posted: Posted) -> bool | None:
        """What the answer is, and tell it."""
        ours: bool | None = True
        try:
            posted.answer.get()
        except NoNodeError:
            ours = False
        except KazooException:
            ours = None
            self._strays.add(posted.request.token, posted.request.key)
        if self._forget(posted) and not ours:
            posted.told(ours)
        return ours

    def _forget(self, posted: Posted) -> bool:
        """False if another thread has."""
        with self._mutex:
            before = self._posted.get(posted.request.key, ())
            left = tuple(one for one in before if one is not posted)
            if left:
                self._posted[posted.request.key] = left
            else:
                self._posted.pop(posted.request.key, None)
            return len(left) < len(before)
