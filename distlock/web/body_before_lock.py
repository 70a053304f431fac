"""Reads the body of a request before the lock is taken.

A client may send its body slowly, and a view that reads the body under the lock keeps everybody else out
meanwhile. So the body is read first, and put back as the request's stream: the view reads it as usual. A
request that would be refused anyway is refused before its body is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, Protocol

from distlock.errors import BodyTooLarge, ConfigurationError
from distlock.grants.current import current_grants
from distlock.terms import READ
from distlock.web.settings.clients import GuardTerms

#: The setting for the largest body that is read before the lock, and the one for requests in a batch.
BODY_BEFORE_LOCK, BATCH_MAX_BODY = "DISTLOCK_BODY_BEFORE_LOCK", "DISTLOCK_BATCH_MAX_BODY"
#: Their defaults, bytes. The first is what Django keeps of a body in memory.
DEFAULTS = {BODY_BEFORE_LOCK: 2_621_440, BATCH_MAX_BODY: 16 * 1024 * 1024}

_PIECE = 65536


class Stream(Protocol):
    """The stream of a request's body."""

    def read(self, size: int, /) -> bytes: ...


class Body(Protocol):
    """The body of one request of a framework."""

    def unread(self) -> Stream | None:
        """Return the stream; None: it can't be read now, or somebody has begun to read it."""

    @property
    def length(self) -> int | None:
        """Its length in bytes, as the request says; None: the request does not say."""

    def put_back(self, content: IO[bytes]) -> None:
        """Let *content* be the stream that the view reads."""


def size_setting(name: str, value: object) -> int:
    """Return *value*, a number of bytes, if it is valid for the setting *name*.

    Raises `ConfigurationError` unless *value* is an int of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{name} is {value!r}. It is a number of bytes, such as {DEFAULTS[name]}.")
    return value


def read_before_lock(
    body: Body, terms: GuardTerms, names: Sequence[str], timeout: float | None, most: int
) -> None:
    """Read *body* if its known length is at most *most* bytes. Leave any other body to the view.

    *timeout* is the longest wait of the guard for *names*, seconds; None: the client's.

    Raises:
        TooManyWaiters: The caller would not be admitted.
    """
    length = body.length
    if not length or length > most or (stream := body.unread()) is None:
        return
    _refuse_overload(terms, names, timeout)
    body.put_back(_read(stream, length))


def read_for_batch(
    body: Body, terms: GuardTerms, names: Sequence[str], timeout: float | None, most: int
) -> None:
    """Read the whole *body*, because the other requests of the batch would wait for it.

    *timeout* is the longest wait of the guard, seconds; None: the client's.

    Raises:
        BodyTooLarge: It has more than *most* bytes.
        TooManyWaiters: The caller would not be admitted.
    """
    length = body.length
    if length == 0 or (stream := body.unread()) is None:
        return
    if length is None or length <= most:
        _refuse_overload(terms, names, timeout)
        # If the length is unknown, one byte more shows that the body is too large.
        content = _read(stream, most + 1 if length is None else length)
        if content.size <= most:
            body.put_back(content)
            return
        content.close()
    shown = ", ".join(map(repr, names))
    raise BodyTooLarge(
        f"The body of a request for the lock {shown} has more than {most} bytes, and is read whole before "
        f"the request joins a batch. Send less, or raise {BATCH_MAX_BODY}."
    )


class _Content(SpooledTemporaryFile[bytes]):
    """A body that was read, in memory or on disk. It is deleted with its request."""

    def __init__(self) -> None:
        super().__init__(max_size=DEFAULTS[BODY_BEFORE_LOCK])
        self.size = 0

    def __del__(self) -> None:
        self.close()


def _read(stream: Stream, most: int) -> _Content:
    content = _Content()
    while content.size < most and (piece := stream.read(min(most - content.size, _PIECE))):
        content.write(piece)
        content.size += len(piece)
    content.seek(0)
    return content


def _refuse_overload(terms: GuardTerms, names: Sequence[str], timeout: float | None) -> None:
    # A reader may join this process's other readers, and a nested guard may hold these names already.
    if terms.lock.mode == READ or current_grants():
        return
    seconds = terms.client.timeout if timeout is None else timeout
    namespace = terms.client.namespace.of(terms.lock.mode)
    namespace.refuse_overload(names, math.inf if seconds == -1 else seconds)
