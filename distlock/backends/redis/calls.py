"""Calls of the Lua scripts: encode them, exchange, check the replies, and explain refusals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.failures import foreign, is_foreign, unavailable
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import HELD, Script, command, encode, encode_release
from distlock.errors import BackendUnavailable


class BoundedCalls:
    """A backend whose calls take at most *io_timeout* seconds."""

    _io_timeout: float

    def _by(self, deadline: float) -> float:
        """Return the deadline of a call that begins now: io_timeout from now, but not after *deadline*."""
        return min(deadline, clock.now() + self._io_timeout)


class ScriptCaller:
    """The caller of the scripts for one process. *ack_window* and *fence_ttl* are in seconds."""

    def __init__(
        self, address: RedisAddress, pool: Pool, process: str, ack_window: float, fence_ttl: float
    ) -> None:
        self._address = address
        self._pool = pool
        #: The arguments that every call of this process has.
        self.about = process, ack_window, fence_ttl

    def call(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        deadline: float,
        more: bytes | Sequence[bytes] = b"",
    ) -> list[list[Any]]:
        """Call *script* for each of *requests* in one round trip, and return the replies.

        If the connection was dead, the calls are repeated once. That is safe. But if the server had carried
        out the first attempt, the repetition of a release or of a break answers that there is no hold.

        Args:
            script: The script.
            requests: The requests, each of which gets a call.
            deadline: When to give up, by `distlock.clock`.
            more: Encoded arguments after those of all scripts: the same for all requests, or one for each.

        Raises:
            BackendUnavailable: The server did not answer, or refused.
        """
        own = repeat(more) if isinstance(more, bytes) else more
        calls = [
            encode(script, request, self.about, more=its) for request, its in zip(requests, own, strict=False)
        ]
        return self.send(script, requests, calls, deadline)

    def release(self, requests: Sequence[LockRequest], deadline: float) -> list[list[Any]]:
        """Release the holds of *requests*, which all have the same mode, in one round trip: see `call`."""
        calls = [encode_release(request, self.about) for request in requests]
        return self.send(scripts.RELEASE[requests[0].mode], requests, calls, deadline)

    def send(
        self, script: Script, requests: Sequence[LockRequest], calls: Sequence[bytes], deadline: float
    ) -> list[list[Any]]:
        """Send *calls* of *script*, encoded for *requests*, and return their replies, checked.

        The calls are sent again if the connection was dead, or if the server does not know the script.
        """
        try:
            return self._attempt(script, requests, calls, deadline)
        except Stale:
            return self._attempt(script, requests, calls, deadline)

    def _attempt(
        self, script: Script, requests: Sequence[LockRequest], calls: Sequence[bytes], deadline: float
    ) -> list[list[Any]]:
        replies = self._pool.exchange(calls, deadline)
        return self._check_or_repeat(script, requests, calls, replies, deadline)

    def call_once(
        self,
        script: Script,
        request: LockRequest,
        call: bytes,
        deadline: float,
        connection: RedisConnection | None = None,
    ) -> list[Any]:
        """Send *call* of *script*, encoded for *request*, and return the reply.

        The call is repeated only if the server does not know the script. Raises `Stale` if the connection was
        dead. *connection*: see `Pool.exchange`.
        """
        replies = self._pool.exchange((call,), deadline, connection)
        reply: list[Any] = replies[0]
        if script.accepts(reply, request.token.encode()):
            return reply
        return self._check_or_repeat(script, [request], [call], replies, deadline)[0]

    def find_foreign_keys(self, request: LockRequest, deadline: float) -> BackendUnavailable:
        """Return the error that names the lock's keys that another program has written."""
        (reply,) = self.call(scripts.FOREIGN_KEYS, [request], deadline)
        return foreign(self._address, [key.decode("utf-8", "replace") for key in reply[1:]])

    def drop_connections(self) -> BackendUnavailable:
        """Close all idle connections, and return the error for a reply that belongs to no request."""
        self._pool.clear()
        return BackendUnavailable(
            f"The Redis server at {self._address.shown} sent an answer that nothing had asked for. "
            "The idle connections to it were closed."
        )

    def _check_or_repeat(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        calls: Sequence[bytes],
        replies: list[Any],
        deadline: float,
    ) -> list[list[Any]]:
        """Return *replies*, after checks. If the server does not know the script, repeat *calls* first."""
        for reply in replies:
            if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                # The server was restarted, failed over, or ran SCRIPT FLUSH. Calls may be repeated even if
                # some have run.
                calls = [script.by_source + call.removeprefix(script.by_digest) for call in calls]
                replies = self._pool.exchange(calls, deadline)
                break
        for request, reply in zip(requests, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise self._refused(script, requests, replies, deadline)
            if not script.accepts(reply, request.token.encode()):
                raise self.drop_connections()
        return replies

    def _refused(
        self, script: Script, requests: Sequence[LockRequest], replies: Sequence[object], deadline: float
    ) -> BackendUnavailable:
        """Return the error for *replies*, some of which are errors."""
        errors = [
            (request, one)
            for request, one in zip(requests, replies, strict=True)
            if isinstance(one, ReplyError)
        ]
        for request, error in errors:
            if script is not scripts.FOREIGN_KEYS and is_foreign(error):
                return self.find_foreign_keys(request, deadline)
        _, error = errors[0]
        return unavailable(self._address, error, script.command_at(str(error)))


class ReplicatedCaller(ScriptCaller):
    """A caller for which a grant counts only when *replicas* replicas have received it.

    It waits for the replicas for half of the remaining time. If fewer have received the grant by then, it
    releases the hold and raises `BackendUnavailable`. ``WAIT`` counts the replicas that have received all
    earlier writes of its connection, and no script can call it: https://redis.io/docs/latest/commands/wait/.
    """

    _address: RedisAddress
    _pool: Pool

    def __init__(
        self,
        address: RedisAddress,
        pool: Pool,
        process: str,
        ack_window: float,
        fence_ttl: float,
        replicas: int,
    ) -> None:
        super().__init__(address, pool, process, ack_window, fence_ttl)
        self._replicas = replicas

    def send(
        self, script: Script, requests: Sequence[LockRequest], calls: Sequence[bytes], deadline: float
    ) -> list[list[Any]]:
        replies = super().send(script, requests, calls, deadline)
        if script is scripts.ACKNOWLEDGE:
            ours = [request for request, reply in zip(requests, replies, strict=True) if reply[1]]
            if ours:
                self._wait_for_replicas(ours, deadline)
        return replies

    def call_once(
        self,
        script: Script,
        request: LockRequest,
        call: bytes,
        deadline: float,
        connection: RedisConnection | None = None,
    ) -> list[Any]:
        reply = super().call_once(script, request, call, deadline, connection)
        if script is scripts.REQUEST[request.mode] and reply[1] == HELD:
            self._wait_for_replicas([request], deadline)
        return reply

    def _wait_for_replicas(self, requests: Sequence[LockRequest], deadline: float) -> None:
        try:
            try:
                received = self._count_replicas(requests, deadline)
            except Stale:
                received = self._count_replicas(requests, deadline)
            if received < self._replicas:
                raise BackendUnavailable(
                    f"The Redis server at {self._address.shown} granted the lock, but only {received} of "
                    f"{self._replicas} replicas had received it in time, so it was given back. Check that "
                    "they follow (INFO replication), or lower the option replicas."
                )
        except BaseException:
            # If the releases fail, too, the holds end with their ttl.
            with suppress(BackendUnavailable):
                for request in requests:
                    self.release([request], deadline)
            raise

    def _count_replicas(self, requests: Sequence[LockRequest], deadline: float) -> int:
        """Return how many replicas have received the holds of *requests*."""
        # WAIT waits for this connection's last write, and so for all earlier writes of the server. The grant
        # may have used another connection, so renew the holds on this one.
        writes = [encode(scripts.RENEW, request, self.about) for request in requests]
        half = max(1, int(500 * (deadline - clock.now())))
        *written, received = self._pool.exchange([*writes, command("WAIT", self._replicas, half)], deadline)
        if isinstance(received, ReplyError):
            raise unavailable(self._address, received, "wait")
        if any(isinstance(reply, ReplyError) for reply in written):
            # The server does not know the script yet, or refuses it, so there was no write to wait for.
            self.call(scripts.RENEW, requests, deadline)
            return self._count_replicas(requests, deadline)
        return int(received)
