"""Each try has a token of its own.

A waiting process asks again and again with the same `LockRequest`, and gives back what fell short in
between. A server that stood still, or a slow network, may carry that out late. It must not end what a later
try was granted: so the servers know another token for each. Which one it is stands in the note that a
backend has in each ask, beside the number of the hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from distlock.backends.base import LockRequest, Sink
from distlock.backends.redis.inspection import PROCESS_LENGTH
from distlock.backends.weak_sink import WeakSink

#: More tries than any ask has.
_TRIES = 1 << 32


class SinkOfTries(WeakSink):
    """Tells *sink* of an ask what a server tells of one of its tries."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: By the token of its latest try: that of each ask that is looked after. Replaced, and never changed.
        self.requests: Mapping[str, str] = {}

    def release_requested(self, key: str, token: str) -> None:
        if (asked := self.requests.get(token)) is not None:
            super().release_requested(key, asked)


def begin_try(request: LockRequest) -> None:
    """Begin a try of *request*, with a token of its own. Grants to earlier tries no longer count."""
    request.number = request.number % _TRIES + 1


def token_of(request: LockRequest) -> str:
    """Return the token of the latest try. It shows the process, and nothing else of the request's token."""
    return (
        request.token[:PROCESS_LENGTH]
        + hashlib.blake2b(f"{request.token} {request.number % _TRIES}".encode(), digest_size=16).hexdigest()
    )


def number_of(request: LockRequest) -> int:
    """The first number of the hold, as far as it was granted; 0: it was not."""
    return request.number // _TRIES


def set_number(request: LockRequest, number: int) -> None:
    request.number = number * _TRIES + request.number % _TRIES
