"""Getting a node of one's own: one transaction that also tells what is there, found again when in doubt."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import (
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete, Exists

from distlock import clock
from distlock.backends.base import Ask
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.folders import make_nodes
from distlock.backends.zookeeper.nodes import Node, check_sequence, contender_prefix, lock_path
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


class Joining:
    def __init__(self, session: Session, base: str, strays: Strays, parents: Parents) -> None:
        self._session = session
        self._base = base
        self._strays = strays
        self._parents = parents

    def join(self, ask: Ask, began: float, deadline: Deadline) -> tuple[Node, bool]:
        """A node at the end of the line, and whether nobody was before it."""
        stray = self._strays.claim(ask.token)
        if stray is not None and (found := self._find_again(ask, stray, began, deadline)) is not None:
            return found, False
        parent = lock_path(self._base, ask.key)
        there = self._parents.take(parent)
        while True:
            self._session.connect(deadline)
            wire, owner = self._session.wire, self._session.id
            requests = [wire.contender(parent, contender_prefix(ask.token))]
            if not there:
                requests.insert(0, wire.container(parent))
            try:
                *made, answer = self._session.exchange(requests, deadline)
            except BaseException:
                self._strays.add(ask.token, ask.key, new=True)
                raise
            refusal = _refusal(answer)
            for error in (*made, refusal):
                if isinstance(error, KazooException) and not isinstance(error, NodeExistsError | NoNodeError):
                    raise unavailable(self._session.address, error)
            if refusal is None:
                break
            if clock.now() >= deadline:
                raise unavailable(
                    self._session.address,
                    KazooTimeoutError(f"the nodes above {parent} could not be made in time ({refusal!r})"),
                )
            # Removed since we used it last, by the server or by another process.
            there = False
            if made and isinstance(made[0], NoNodeError):
                make_nodes(self._session, self._base, deadline)
        if owner is None or owner != self._session.id:
            # One session ended and the next began meanwhile. Which of them it belongs to, the server knows.
            self._strays.add(ask.token, ask.key, new=True)
            raise Broken(f"The session with ZooKeeper at {self._session.address.shown} ended.")
        path, stat = answer
        # Both were one transaction: it counted the children, and its number is the node's.
        return self._found(ask, path, owner, stat.mzxid, began), stat.numChildren == 1

    def _find_again(self, ask: Ask, new: bool, began: float, deadline: Deadline) -> Node | None:
        """The node that an earlier attempt has made although we never heard of it; others of ours go."""
        try:
            for path in self._strays.find(ask.token, ask.key, deadline):
                (stat,) = self._session.ask([Exists(path, None)], deadline)
                if isinstance(stat, KazooException):
                    raise unavailable(self._session.address, stat)
                if new and stat is not None and stat.ephemeralOwner == self._session.id:
                    return self._found(ask, path, stat.ephemeralOwner, stat.czxid, began)
                # It was lost before, or dies with a session that is not ours any more.
                self._session.ask([Delete(path, -1)], deadline)
        except BaseException:
            self._strays.add(ask.token, ask.key, new)
            raise
        return None

    def _found(self, ask: Ask, path: str, owner: int, czxid: int, began: float) -> Node:
        parent, _, name = path.rpartition("/")
        check_sequence(name)
        return Node(ask, parent, name, owner, czxid, began)


def _refusal(answer: Any) -> KazooException | None:
    """Why a transaction was refused: it has an error for each of its parts, and one of them tells."""
    parts = answer if isinstance(answer, list) else [answer]
    errors = [part for part in parts if isinstance(part, KazooException)]
    telling = [error for error in errors if not isinstance(error, RolledBackError | RuntimeInconsistency)]
    return (telling or errors or [None])[0]
