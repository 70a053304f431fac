"""Calls of the scripts, and what the server makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from distlock.backends.base import Ask
from distlock.backends.redis import scripts
from distlock.backends.redis.address import Address
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.failures import foreign, is_foreign, unavailable
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import Script, terms
from distlock.errors import BackendUnavailable


class Calls:
    """Those of one process. *ack_window*, *fence_ttl*: seconds, for all of them."""

    def __init__(
        self, address: Address, pool: Pool, process: str, ack_window: float, fence_ttl: float
    ) -> None:
        self._address = address
        self._pool = pool
        self.process = process
        self._ack_window = ack_window
        self._fence_ttl = fence_ttl

    def call(
        self, script: Script, asks: Sequence[Ask], deadline: float, queue: bool = False, more: bytes = b""
    ) -> list[list[Any]]:
        """As `attempt`, and a second attempt if a connection was dead: no answer changes by repetition."""
        try:
            return self.attempt(script, asks, deadline, queue, more)
        except Stale:
            return self.attempt(script, asks, deadline, queue, more)

    def attempt(
        self,
        script: Script,
        asks: Sequence[Ask],
        deadline: float,
        queue: bool = False,
        more: bytes = b"",
        connection: Connection | None = None,
    ) -> list[list[Any]]:
        """Call *script* for each of *asks*, in one round trip. Each reply begins with its ask's token.

        *more*: arguments after those that all scripts take. *connection*: see `Pool.exchange`.
        """
        calls = list(map(self.written, repeat(script), asks, repeat(queue), repeat(more)))
        replies = self._pool.exchange(calls, deadline, connection)
        if len(asks) == 1 and is_answer(script, replies[0], asks[0].token.encode()):
            return replies
        for reply in replies:
            if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                # The server was restarted, failed over or told to forget its scripts. What did run may run
                # again.
                calls = [script.by_source + call.removeprefix(script.by_digest) for call in calls]
                replies = self._pool.exchange(calls, deadline)
                break
        for ask, reply in zip(asks, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise self._refused(script, asks, replies, deadline)
            if not is_answer(script, reply, ask.token.encode()):
                raise self.not_asked()
        return replies

    def written(self, script: Script, ask: Ask, queue: bool = False, more: bytes = b"") -> bytes:
        """The call of *script* for *ask*."""
        token = ask.token.encode()
        said = terms(ask.key, ask.ttl, ask.span, queue, self.process, self._ack_window, self._fence_ttl)
        return script.by_digest + said + b"$%d\r\n%b\r\n" % (len(token), token) + more

    def foreign(self, ask: Ask, deadline: float) -> BackendUnavailable:
        """Which of the lock's keys are somebody else's."""
        (reply,) = self.call(scripts.FOREIGN, [ask], deadline)
        return foreign(self._address, [key.decode("utf-8", "replace") for key in reply[1:]])

    def not_asked(self) -> BackendUnavailable:
        self._pool.clear()
        return BackendUnavailable(
            f"The Redis server at {self._address.shown} sent an answer that nothing had asked for. "
            "Its connections were dropped."
        )

    def _refused(
        self, script: Script, asks: Sequence[Ask], replies: Sequence[object], deadline: float
    ) -> BackendUnavailable:
        """What those of *replies* say that are errors: above all whether a key is somebody else's."""
        errors = [(ask, one) for ask, one in zip(asks, replies, strict=True) if isinstance(one, ReplyError)]
        for ask, error in errors:
            if script is not scripts.FOREIGN and is_foreign(error):
                return self.foreign(ask, deadline)
        _, error = errors[0]
        return unavailable(self._address, error, script.command_at(str(error)))


def is_answer(script: Script, reply: object, token: bytes) -> bool:
    """Whether *reply* is what *script* answers to *token*, and no other's or nonsense."""
    match reply:
        case [echo, int(told), *numbers] if echo == token and len(numbers) == script.numbers.get(told, 0):
            for one in numbers:
                if not isinstance(one, int) and not (isinstance(one, bytes) and one.isdigit()):
                    return False
            return True
        case [echo, *keys] if echo == token and script is scripts.FOREIGN:
            return all(isinstance(key, bytes) for key in keys)
    return False
