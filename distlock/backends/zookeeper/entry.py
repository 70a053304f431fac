"""Getting a node of one's own: made in one go with the first look at the line, found again when in doubt."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren2

from distlock import clock
from distlock.backends.base import Ask
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import check_number, contender_prefix, in_line, lock_path
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.place import Place
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


class Entry:
    def __init__(self, session: Session, base: str, strays: Strays, parents: Parents) -> None:
        self._session = session
        self._base = base
        self._strays = strays
        self._parents = parents

    def enter(self, ask: Ask, began: float, deadline: float) -> tuple[Place, list[str], int]:
        """The place, who is in line, and the last transaction that changed it."""
        if self._strays.claim(ask.token) and (found := self._adopt(ask, began, deadline)) is not None:
            return found
        parent = lock_path(self._base, ask.key)
        there = self._parents.take(parent)
        client = self._session.client
        while True:
            requests = [
                client.contender(f"{parent}/{contender_prefix(ask.token)}"),
                GetChildren2(parent, None),
            ]
            if not there:
                requests.insert(0, client.container(parent))
            try:
                *made, created, listed = self._session.exchange(requests, deadline)
            except BaseException:
                self._strays.add(ask.token, ask.key)
                raise
            if not isinstance(created, NoNodeError):
                break
            if clock.now() >= deadline:
                raise unavailable(self._session.address, created)
            # Removed since we used it last, by the server or by another process.
            there = False
            if made and isinstance(made[0], NoNodeError):
                self._make_base(deadline)
        for answer in (*made, created, listed):
            if isinstance(answer, KazooException) and not isinstance(answer, NodeExistsError):
                raise unavailable(self._session.address, answer)
        path, stat = created
        return self._placed(ask, path, stat, began), in_line(listed[0]), listed[1].pzxid

    def _adopt(self, ask: Ask, began: float, deadline: float) -> tuple[Place, list[str], int] | None:
        """The node that an earlier attempt has made although we never heard of it."""
        try:
            for path in self._strays.find(ask.token, ask.key, deadline):
                parent = lock_path(self._base, ask.key)
                stat, listed = self._session.ask([Exists(path, None), GetChildren2(parent, None)], deadline)
                if isinstance(stat, KazooException) or isinstance(listed, KazooException) or stat is None:
                    continue
                if stat.ephemeralOwner == self._session.id:
                    return self._placed(ask, path, stat, began), in_line(listed[0]), listed[1].pzxid
                # It lives and dies with a session that is not ours any more.
                self._session.ask([Delete(path, -1)], deadline)
        except BaseException:
            self._strays.add(ask.token, ask.key)
            raise
        return None

    def _placed(self, ask: Ask, path: str, stat: Any, began: float) -> Place:
        parent, _, name = path.rpartition("/")
        check_number(name)
        return Place(ask, parent, name, stat.ephemeralOwner, stat.czxid, began)

    def _make_base(self, deadline: float) -> None:
        """Make the nodes from the root down to the folder of the locks, those that are missing."""
        steps = self._base.strip("/").split("/")
        paths = ["/" + "/".join(steps[: number + 1]) for number in range(len(steps))]
        # Those that are there are not touched: we may have no right to make their like.
        for path, stat in zip(
            paths, self._session.ask([Exists(path, None) for path in paths], deadline), strict=True
        ):
            if stat is None:
                (answer,) = self._session.ask([Create2(path, b"", self._session.client.acl, 0)], deadline)
                stat = answer
            if isinstance(stat, KazooException) and not isinstance(stat, NodeExistsError):
                raise unavailable(self._session.address, stat)
