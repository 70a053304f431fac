"""Holds that are wanted back: the node of the hold says so, and goes with it.

Curator does so, too (``Revoker``): its word is obeyed, and said to its own contenders. A node of ours keeps
what it says besides, and is written by its version, so that no word is lost where two write at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import GetData, SetData

from distlock import clock
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges, run
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import READING, is_ours
from distlock.backends.zookeeper.session import Session

#: What stands in the node of a hold of ours, and in one of Curator's.
_WANTED, _REVOKED = b" wanted", b"__REVOKE__"


def is_wanted(data: bytes) -> bool:
    """Whether the node of ours that says *data* is wanted back."""
    return _WANTED in data or data.startswith(_REVOKED)


def want(session: Session, parent: str, names: Sequence[str], deadline: Deadline) -> bool:
    """Have it known that the holds of the nodes *names* are wanted back. False: they are all gone.

    One that is still to acknowledge counts as acknowledged from then on: nobody sends it away any more, and
    where it hangs it ends with its session.
    """
    words = [_wanted if is_ours(name) else _revoked for name in names]
    told = [
        run(rewrite(session, f"{parent}/{name}", word, deadline))
        for name, word in zip(names, words, strict=True)
    ]
    return any(told)


def rewrite(
    session: Session, path: str, change: Callable[[bytes], bytes], deadline: Deadline
) -> Exchanges[bool]:
    """Have the node say what *change* makes of what it says. False: it is gone."""
    while True:
        (found,) = yield from session.asking([GetData(path, None)], deadline)
        if isinstance(found, NoNodeError):
            return False
        said, stat = _checked(session, found)
        if (new := change(said)) == said:
            return True
        (answer,) = yield from session.asking([SetData(path, new, stat.version)], deadline)
        if isinstance(answer, NoNodeError):
            return False
        if not isinstance(answer, BadVersionError):
            _checked(session, answer)
            return True
        if clock.now() >= deadline:
            raise unavailable(session.address, KazooTimeoutError(f"others write to {path} all the time"))


def reading(data: bytes) -> bytes:
    """What the node of a writer says that reads by now."""
    return data if data.endswith(READING) else data + READING


def _wanted(data: bytes) -> bytes:
    if is_wanted(data):
        return data
    if data.endswith(READING):
        return data.removesuffix(READING) + _WANTED + READING
    return data + _WANTED


def _revoked(_: bytes) -> bytes:
    return _REVOKED


def _checked(session: Session, answer: Any) -> Any:
    if isinstance(answer, KazooException):
        raise unavailable(session.address, answer)
    return answer
