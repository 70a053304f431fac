"""Getting a node of one's own, with a look at the line just before; found again when in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete, Exists, GetChildren2

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.folders import make_nodes
from distlock.backends.zookeeper.nodes import (
    Node,
    check_sequence,
    contender_prefix,
    in_line,
    lock_path,
    next_sequence,
    sequence_of,
)
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


class Joining:
    def __init__(self, session: Session, base: str, strays: Strays, parents: Parents) -> None:
        self._session = session
        self._base = base
        self._strays = strays
        self._parents = parents

    def join(
        self, request: LockRequest, began: float, deadline: Deadline
    ) -> Exchanges[tuple[Node, list[str] | None]]:
        """A node at the end of the line, and that line; None: it has to be looked at."""
        stray = self._strays.claim(request.token)
        if stray is not None:
            found = yield from self._find_again(request, stray, began, deadline)
            if found is not None:
                return found, None
        parent = lock_path(self._base, request.key)
        there = self._parents.take(parent)
        while True:
            yield from self._session.connecting(deadline)
            wire, owner = self._session.wire, self._session.id
            requests = [GetChildren2(parent, None), wire.contender(parent, contender_prefix(request))]
            if not there:
                requests.insert(0, wire.container(parent))
            try:
                answers = yield from self._session.exchanging(requests, deadline)
            except BaseException:
                self._strays.add(request.token, request.key, new=True)
                raise
            errors = [answer for answer in answers if isinstance(answer, KazooException)]
            for error in errors:
                if not isinstance(error, NodeExistsError | NoNodeError):
                    raise unavailable(self._session.address, error)
            *_, listed, made = answers
            if made not in errors:
                break
            if clock.now() >= deadline:
                raise unavailable(
                    self._session.address,
                    KazooTimeoutError(f"the nodes above {parent} could not be made in time ({made!r})"),
                )
            if not there and isinstance(answers[0], NoNodeError):
                yield from make_nodes(self._session, self._base, deadline)
            # Removed since we used it last, by the server or by another process.
            there = False
        if owner is None or owner != self._session.id:
            # One session ended and the next began meanwhile. Which of them it belongs to, the server knows.
            self._strays.add(request.token, request.key, new=True)
            raise Broken(f"The session with ZooKeeper at {self._session.address.shown} ended.")
        path, stat = made
        node = self._found(request, path, owner, stat.czxid, began)
        return node, self._line(node, listed)

    def _line(self, node: Node, listed: tuple[Sequence[str], Any] | KazooException) -> list[str] | None:
        """The line when *node* was made; None where it has to be looked at again."""
        if isinstance(listed, KazooException):
            return None
        names, stat = listed
        node.earlier = in_line(names)
        if len(node.earlier) < len(names) or sequence_of(node.name) != next_sequence(stat):
            return None
        return [*node.earlier, node.name]

    def _find_again(
        self, request: LockRequest, new: bool, began: float, deadline: Deadline
    ) -> Exchanges[Node | None]:
        """The node that an earlier attempt has made although we never heard of it; others of ours go."""
        try:
            for path in (yield from self._strays.find(request.token, request.key, deadline)):
                (stat,) = yield from self._session.asking([Exists(path, None)], deadline)
                if isinstance(stat, KazooException):
                    raise unavailable(self._session.address, stat)
                if new and stat is not None and stat.ephemeralOwner == self._session.id:
                    return self._found(request, path, stat.ephemeralOwner, stat.czxid, began)
                # It was lost before, or dies with a session that is not ours any more.
                yield from self._session.asking([Delete(path, -1)], deadline)
        except BaseException:
            self._strays.add(request.token, request.key, new)
            raise
        return None

    def _found(self, request: LockRequest, path: str, owner: int, czxid: int, began: float) -> Node:
        parent, _, name = path.rpartition("/")
        check_sequence(name)
        return Node(request, parent, name, owner, czxid, began)
