"""Releases that were sent, and whose answers are read later: hardly anybody needs them.

The next request for the same key must not be carried out before: it goes behind on the same connection, or
waits until the answer is read. The next call on its connection reads it, or `settle`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import Calls, is_answer
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import Script, left_by


class Posted:
    """One of them. *until*: the moment from which its answer is not expected any more."""

    __slots__ = ("connection", "kept_in", "lost", "over", "request", "told", "undone", "until", "usual")

    def __init__(
        self,
        kept_in: dict[str, Posted],
        request: LockRequest,
        told: Callable[[bool | None], None],
        until: float,
    ) -> None:
        self.kept_in = kept_in
        self.request = request
        self.told = told
        self.until = until
        #: The answer that nobody needs to be told.
        self.usual = [request.token.encode(), 1]
        #: What it was sent on. Weak: one that an interrupt tore out of the pool is lost at once.
        self.connection: weakref.ref[Connection] | None = None
        #: The answer was read, or the release was repeated.
        self.over = False
        #: There will be no answer: it wants to be repeated.
        self.lost = False
        #: Lost, and the server has certainly not carried it out.
        self.undone = False

    def answered(self, reply: object) -> None:
        """Raises OSError for nonsense: no later answer of that connection is to be believed."""
        if reply == self.usual:
            self.end()
        elif isinstance(reply, ReplyError):
            self.lost = self.undone = True
        elif not is_answer(scripts.RELEASE[self.request.mode], reply, self.request.token.encode()):
            self.lost = True
            raise OSError("it answered something that was not asked")
        elif not self.over:
            self.end()
            self.told(False)

    def end(self) -> None:
        self.over = True
        # One that was repeated may be answered late, when the next has taken its place.
        if self.kept_in.get(self.request.key) is self:
            self.kept_in.pop(self.request.key, None)


class Unanswered:
    """Those of one process."""

    def __init__(self, calls: Calls, pool: Pool) -> None:
        self._calls = calls
        self._pool = pool
        #: By key. Of several holds of one, as of permits, one at a time is released so.
        self._posted: dict[str, Posted] = {}
        #: The scripts that the server has, as far as is known. Where it has not, nothing would be released.
        self.known: set[Script] = set()
        #: One thread at a time repeats what was lost.
        self._repeating = threading.RLock()

    def of(self, key: str) -> Posted | None:
        """The release of *key* that was sent, and whose answer is not read."""
        return self._posted.get(key)

    def lost(self) -> list[str]:
        """The keys whose release wants to be repeated."""
        return [key for key, posted in list(self._posted.items()) if posted.lost]

    def post(
        self,
        request: LockRequest,
        told: Callable[[bool | None], None],
        deadline: float,
        send: Callable[[bytes, Posted, float], bool] | None = None,
    ) -> bool:
        """Send the release. False: not now, it has to be awaited. Raises `Stale`.

        *send*: what sends it; None: the pool.
        """
        script = scripts.RELEASE[request.mode]
        if script not in self.known:
            return False
        posted = Posted(self._posted, request, told, deadline)
        if self._posted.setdefault(request.key, posted) is not posted:
            return False
        sent = False
        try:
            written = self._calls.written(script, request, more=left_by(request))
            sent = (send or self._pool.post)(written, posted, deadline)
        finally:
            if not sent:
                posted.end()
        return sent

    def connection(self, key: str, deadline: float) -> Connection | None:
        """Where the next call for *key* has to be made; None: anywhere. Raises `BackendUnavailable`."""
        posted = self._posted.get(key)
        if posted is None:
            return None
        if not (posted.over or posted.lost):
            # Time is left to repeat it, if its connection stays in use.
            connection = self._pool.claim(posted, (clock.now() + deadline) / 2)
            if connection is not None:
                return connection
            posted.lost = True
        self.repeat(posted, deadline)
        return None

    def finish(self, key: str, deadline: float) -> None:
        """Have the answer for *key* read. Raises `BackendUnavailable`."""
        connection = self.connection(key, deadline)
        if connection is not None:
            with suppress(Stale):
                self._pool.exchange([], deadline, connection)
            self.again(key, deadline)

    def again(self, key: str, deadline: float) -> bool:
        """Repeat the release of *key* if it was lost. True: so what was asked behind it has to be, too."""
        posted = self._posted.get(key)
        if posted is None or not posted.lost:
            return False
        self.repeat(posted, deadline)
        return True

    def repeat(self, posted: Posted, deadline: float) -> None:
        """Release again if it was lost, with the answer awaited. Raises `BackendUnavailable`."""
        with self._repeating:
            if not posted.over:
                script, left = scripts.RELEASE[posted.request.mode], left_by(posted.request)
                self.known.discard(script)
                # Of an attempt without an answer nobody knows whether it was the one that did it.
                undone, posted.undone = posted.undone, False
                try:
                    reply = self._calls.one(script, posted.request, deadline, more=left)
                except Stale:
                    undone = False
                    reply = self._calls.one(script, posted.request, deadline, more=left)
                self.known.add(script)
                posted.end()
                if undone and not reply[1]:
                    posted.told(False)

    def forget(self, request: LockRequest) -> None:
        """The hold of *request* is known to be given back."""
        posted = self._posted.get(request.key)
        if posted is not None and posted.request.token == request.token:
            posted.end()

    def settle(self, deadline: float) -> bool:
        """Read what has been answered. What was lost is told to be. True: nothing more is awaited."""
        awaited = False
        for posted in list(self._posted.values()):
            if not (posted.over or posted.lost):
                self._pool.collect(posted, deadline)
            if posted.over:
                continue
            if posted.lost and posted.undone:
                self.repeat(posted, max(deadline, posted.until))
            elif posted.lost or clock.now() >= posted.until:
                posted.lost = True
                # The engine repeats it, and the next request for the key if that comes first.
                told, posted.told = posted.told, _tell_nobody
                told(None)
                if clock.now() >= posted.until + 2 * posted.request.ttl:
                    posted.end()
            else:
                awaited = True
        return not awaited


def _tell_nobody(ours: bool | None) -> None:
    pass
