"""A grant that replicas have heard of survives its server, where one of those takes its place.

``WAIT`` tells how many replicas have got what its connection wrote before. A script can't ask for that:
https://redis.io/docs/latest/commands/wait/.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.address import Address
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import Script, command, left_by
from distlock.backends.redis.told import HELD
from distlock.errors import BackendUnavailable


class ConfirmedCalls(Calls):
    """Those of one process, in which a grant counts when *replicas* of them have heard of it.

    That is waited for for half of what is left of a call. If too few have heard until then, the hold is given
    back, and the call raises `BackendUnavailable`.
    """

    _address: Address
    _pool: Pool

    def __init__(
        self,
        address: Address,
        pool: Pool,
        process: str,
        ack_window: float,
        fence_ttl: float,
        replicas: int,
    ) -> None:
        super().__init__(address, pool, process, ack_window, fence_ttl)
        self._replicas = replicas

    def call(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        deadline: float,
        queue: bool = False,
        more: bytes | Sequence[bytes] = b"",
    ) -> list[list[Any]]:
        replies = super().call(script, requests, deadline, queue, more)
        if script is scripts.ACKNOWLEDGE:
            ours = [request for request, reply in zip(requests, replies, strict=True) if reply[1]]
            if ours:
                self._confirm(ours, deadline)
        return replies

    def one(
        self,
        script: Script,
        request: LockRequest,
        deadline: float,
        queue: bool = False,
        more: bytes = b"",
        connection: Connection | None = None,
    ) -> list[Any]:
        reply = super().one(script, request, deadline, queue, more, connection)
        if script is scripts.REQUEST[request.mode] and reply[1] == HELD:
            self._confirm([request], deadline)
        return reply

    def _confirm(self, requests: Sequence[LockRequest], deadline: float) -> None:
        try:
            try:
                known = self._known(requests, deadline)
            except Stale:
                known = self._known(requests, deadline)
            if known < self._replicas:
                raise BackendUnavailable(
                    f"The Redis server at {self._address.shown} granted the lock, and {known} of "
                    f"{self._replicas} replicas had heard of it in time: it was given back. See whether they "
                    "follow (INFO replication), or lower the option replicas."
                )
        except BaseException:
            # If that fails, too, they end with their ttl.
            with suppress(BackendUnavailable):
                for request in requests:
                    super().call(scripts.RELEASE[request.mode], [request], deadline, more=left_by(request))
            raise

    def _known(self, requests: Sequence[LockRequest], deadline: float) -> int:
        """How many replicas have heard of the holds of *requests*."""
        # A write on the connection that waits: all that was written before, on any other one, is older.
        writes = [self.written(scripts.RENEW, request) for request in requests]
        half = max(1, int(500 * (deadline - clock.now())))
        *written, known = self._pool.exchange([*writes, command("WAIT", self._replicas, half)], deadline)
        if isinstance(known, ReplyError):
            raise unavailable(self._address, known, "wait")
        if any(isinstance(reply, ReplyError) for reply in written):
            # Nothing was written: the server does not know the script yet, or refuses.
            super().call(scripts.RENEW, requests, deadline)
            return self._known(requests, deadline)
        return int(known)
