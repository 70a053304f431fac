"""Pending releases: they were sent, and nobody waits for the reply.

A request for a key must not overtake a pending release of the key. It is sent after the release on the same
connection, or waits for the reply. The next call on that connection reads the reply, or
`PendingReleases.settle` does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import ScriptCaller
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import Script, encode_release


@dataclass(slots=True, eq=False)
class PendingRelease:
    """A release whose reply has not been read. After *until*, the reply is no longer expected."""

    kept_in: dict[str, PendingRelease]
    request: LockRequest
    notify: Callable[[bool | None], None]
    until: float
    #: The connection that has the release. Weak, so that one that an interrupt has dropped is lost at once.
    connection: weakref.ref[RedisConnection] | None = None
    #: Whether the reply was read, or the release was repeated.
    over: bool = False
    #: Whether no reply will come, or the server has refused the release: it has to be repeated.
    lost: bool = False
    #: Whether the server has certainly not carried out the release.
    undone: bool = False

    def answered(self, reply: object) -> None:
        """Take *reply*. Raises `OSError` if it is no reply to a release: the connection is unusable then."""
        token = self.request.token.encode()
        if reply == [token, 1]:
            # The usual reply: the hold was ours.
            self.end()
        elif isinstance(reply, ReplyError):
            self.lost = self.undone = True
        elif not scripts.RELEASE[self.request.mode].accepts(reply, token):
            self.lost = True
            raise OSError("it answered something that was not asked")
        elif not self.over:
            self.end()
            self.notify(False)

    def end(self) -> None:
        self.over = True
        # The reply to a repeated release may come late, when there is a later release of the key.
        if self.kept_in.get(self.request.key) is self:
            self.kept_in.pop(self.request.key, None)


class PendingReleases:
    """The pending releases of one process, at most one for each key."""

    def __init__(self, caller: ScriptCaller, pool: Pool) -> None:
        self._caller = caller
        self._pool = pool
        self.by_key: dict[str, PendingRelease] = {}
        #: The scripts that the server has, as far as we know. If it lacked a script, a release would do
        #: nothing.
        self.known: set[Script] = set()
        #: One thread at a time repeats lost releases.
        self._repeating = threading.RLock()

    def lost(self) -> list[str]:
        """Return the keys whose release has to be repeated."""
        return [key for key, pending in list(self.by_key.items()) if pending.lost]

    def post(
        self,
        request: LockRequest,
        notify: Callable[[bool | None], None],
        deadline: float,
        send: Callable[[bytes, PendingRelease, float], bool] | None = None,
    ) -> bool:
        """Send the release of *request* without waiting for the reply.

        Args:
            request: The request whose hold ends.
            notify: Called with False if the hold had been lost, and with None if that is unknown.
            deadline: When the reply is no longer expected.
            send: Sends the call. By default, the pool does.

        Returns:
            False if nothing was sent: the server is not known to have the script, as before the first
            release; or the call would have to wait. Then the caller has to release, and wait for the reply.

        Raises:
            Stale: The connection was dead.
        """
        if scripts.RELEASE[request.mode] not in self.known:
            return False
        pending = PendingRelease(self.by_key, request, notify, deadline)
        if self.by_key.setdefault(request.key, pending) is not pending:
            return False
        sent = False
        try:
            sent = (send or self._pool.post)(encode_release(request, self._caller.about), pending, deadline)
        finally:
            if not sent:
                pending.end()
        return sent

    def claim(self, key: str, deadline: float) -> RedisConnection | None:
        """Claim the connection on which the next call for *key* has to be sent.

        Return None if the call may use any connection: no release of *key* is pending, or it was lost, and
        `claim` has repeated it. Raises `BackendUnavailable`.
        """
        pending = self.by_key.get(key)
        if pending is None:
            return None
        if not (pending.over or pending.lost):
            # If other calls keep the connection busy, half of the time is left for a repetition.
            connection = self._pool.lend(pending) or self._pool.claim(pending, (clock.now() + deadline) / 2)
            if connection is not None:
                return connection
            pending.lost = True
        self.repeat(pending, deadline)
        return None

    def finish(self, key: str, deadline: float) -> None:
        """Read the reply to the pending release of *key*, or repeat the release if it was lost.

        Raises `BackendUnavailable`.
        """
        connection = self.claim(key, deadline)
        if connection is not None:
            with suppress(Stale):
                self._pool.exchange([], deadline, connection)
            self.repeat_lost(key, deadline)

    def repeat_lost(self, key: str, deadline: float) -> None:
        """Repeat the release of *key* if it was lost. Raises `BackendUnavailable`."""
        pending = self.by_key.get(key)
        if pending is not None and pending.lost:
            self.repeat(pending, deadline)

    def repeat(self, pending: PendingRelease, deadline: float) -> None:
        """Repeat the release, unless its reply has come, and wait for the reply.

        Raises `BackendUnavailable`.
        """
        with self._repeating:
            if pending.over:
                return
            request = pending.request
            script, call = scripts.RELEASE[request.mode], encode_release(request, self._caller.about)
            self.known.discard(script)
            # An earlier attempt without a reply may have released the hold.
            undone, pending.undone = pending.undone, False
            try:
                reply = self._caller.call_once(script, request, call, deadline)
            except Stale:
                undone = False
                reply = self._caller.call_once(script, request, call, deadline)
            self.known.add(script)
            pending.end()
            if undone and not reply[1]:
                pending.notify(False)

    def forget(self, request: LockRequest) -> None:
        """End the pending release of *request*, because its hold is released."""
        pending = self.by_key.get(request.key)
        if pending is not None and pending.request.token == request.token:
            pending.end()

    def settle(self, deadline: float) -> bool:
        """Read the replies that come until *deadline*. Return whether no more replies are expected.

        Repeat a release that the server has refused. If a release is lost otherwise, or its reply is overdue,
        call its *notify* with None. Raises `BackendUnavailable`.
        """
        awaited = False
        for pending in list(self.by_key.values()):
            if not (pending.over or pending.lost):
                self._pool.collect(pending, deadline)
            if pending.over:
                continue
            if pending.lost and pending.undone:
                self.repeat(pending, max(deadline, pending.until))
            elif pending.lost or clock.now() >= pending.until:
                pending.lost = True
                # The engine repeats the release, or the next request for the key does.
                notify, pending.notify = pending.notify, _ignore
                notify(None)
                if clock.now() >= pending.until + 2 * pending.request.ttl:
                    pending.end()
            else:
                awaited = True
        return not awaited


def _ignore(ours: bool | None) -> None:
    pass
