"""Calls of the scripts, and what the server makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.address import Address
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.failures import foreign, is_foreign, unavailable
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import Script, head, wish_of
from distlock.errors import BackendUnavailable


class Calls:
    """Those of one process. *ack_window*, *fence_ttl*: seconds, for all of them."""

    def __init__(
        self, address: Address, pool: Pool, process: str, ack_window: float, fence_ttl: float
    ) -> None:
        self._address = address
        self._pool = pool
        self.process = process
        #: What each call says of this process.
        self._ours = process, ack_window, fence_ttl

    def call(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        deadline: float,
        queue: bool = False,
        more: bytes | Sequence[bytes] = b"",
    ) -> list[list[Any]]:
        """As `attempt`, and a second attempt if a connection was dead: no answer changes by repetition."""
        try:
            return self.attempt(script, requests, deadline, queue, more)
        except Stale:
            return self.attempt(script, requests, deadline, queue, more)

    def attempt(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        deadline: float,
        queue: bool = False,
        more: bytes | Sequence[bytes] = b"",
        connection: Connection | None = None,
    ) -> list[list[Any]]:
        """Call *script* for each of *requests*, in one round trip. Each reply begins with its ask's token.

        *more*: arguments after those that all scripts take, the same for all asks, or each its own.
        *connection*: see `Pool.exchange`.
        """
        own = repeat(more) if isinstance(more, bytes) else more
        calls = list(map(self.written, repeat(script), requests, repeat(queue), own))
        replies = self._pool.exchange(calls, deadline, connection)
        return self._answers(script, requests, calls, replies, deadline)

    def one(
        self,
        script: Script,
        request: LockRequest,
        deadline: float,
        queue: bool = False,
        more: bytes = b"",
        connection: Connection | None = None,
    ) -> list[Any]:
        """As `attempt`, for one *request*. Its reply."""
        call = self.written(script, request, queue, more)
        replies = self._pool.exchange((call,), deadline, connection)
        reply: list[Any] = replies[0]
        if is_answer(script, reply, request.token.encode()):
            return reply
        return self._answers(script, [request], [call], replies, deadline)[0]

    def written(self, script: Script, request: LockRequest, queue: bool = False, more: bytes = b"") -> bytes:
        """The call of *script* for *request*."""
        token = request.token.encode()
        begin = head(script, request.key, request.ttl, wish_of(request), queue, self._ours, len(token))
        return b"%b%b\r\n%b" % (begin, token, more)

    def _answers(
        self,
        script: Script,
        requests: Sequence[LockRequest],
        calls: Sequence[bytes],
        replies: list[Any],
        deadline: float,
    ) -> list[list[Any]]:
        """*replies* to *calls*, or what a second attempt is answered. Raises what is no answer."""
        for reply in replies:
            if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                # The server was restarted, failed over or told to forget its scripts. What did run may run
                # again.
                calls = [script.by_source + call.removeprefix(script.by_digest) for call in calls]
                replies = self._pool.exchange(calls, deadline)
                break
        for request, reply in zip(requests, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise self._refused(script, requests, replies, deadline)
            if not is_answer(script, reply, request.token.encode()):
                raise self.not_asked()
        return replies

    def foreign(self, request: LockRequest, deadline: float) -> BackendUnavailable:
        """Which of the lock's keys are somebody else's."""
        (reply,) = self.call(scripts.FOREIGN, [request], deadline)
        return foreign(self._address, [key.decode("utf-8", "replace") for key in reply[1:]])

    def not_asked(self) -> BackendUnavailable:
        self._pool.clear()
        return BackendUnavailable(
            f"The Redis server at {self._address.shown} sent an answer that nothing had asked for. "
            "Its connections were dropped."
        )

    def _refused(
        self, script: Script, requests: Sequence[LockRequest], replies: Sequence[object], deadline: float
    ) -> BackendUnavailable:
        """What those of *replies* say that are errors: above all whether a key is somebody else's."""
        errors = [
            (request, one)
            for request, one in zip(requests, replies, strict=True)
            if isinstance(one, ReplyError)
        ]
        for request, error in errors:
            if script is not scripts.FOREIGN and is_foreign(error):
                return self.foreign(request, deadline)
        _, error = errors[0]
        return unavailable(self._address, error, script.command_at(str(error)))


def is_answer(script: Script, reply: object, token: bytes) -> bool:
    """Whether *reply* is what *script* answers to *token*, and no other's or nonsense."""
    if not isinstance(reply, list) or not reply or reply[0] != token:
        return False
    if script is scripts.FOREIGN:
        return all(isinstance(key, bytes) for key in reply[1:])
    if len(reply) < 2 or not isinstance(told := reply[1], int):
        return False
    end = 2 + script.numbers.get(told, 0)
    if told in script.entries and not isinstance(reply[-1], bytes):
        return False
    if len(reply) != end + (told in script.entries):
        return False
    for one in reply[2:end]:
        if not isinstance(one, int) and not (isinstance(one, bytes) and one.isdigit()):
            return False
    return True
