"""Deleting nodes of ours, and those of locks that are not used any more."""

from __future__ import annotations

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays


class Leaving:
    """Threads share it."""

    def __init__(self, session: Session, strays: Strays, parents: Parents) -> None:
        self._session = session
        self._strays = strays
        self._parents = parents

    def delete(
        self, path: str, request: LockRequest, deadline: Deadline, owner: int | None = None
    ) -> Exchanges[bool]:
        """Delete a node of *request*. False if it was gone already."""
        tried = False
        try:
            while True:
                try:
                    (answer,) = yield from self._session.exchanging([Delete(path, -1)], deadline)
                    break
                except Broken:
                    deadline = deadline.extended()
                    if clock.now() >= deadline:
                        raise
                    tried = True
        except BaseException:
            self._strays.add(request.token, request.key)
            raise
        self.spare(path.rpartition("/")[0])
        if isinstance(answer, NoNodeError):
            # If its session lives, it was our first attempt that deleted it.
            return tried and owner == self._session.id
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        return True

    def spare(self, parent: str) -> None:
        """We use that lock no more, for now."""
        self._parents.put(parent)
        if self._parents.many:
            self.tidy()

    def tidy(self) -> None:
        """Remove the nodes of locks that are not used any more; those that are in use do not let us."""
        for path in self._parents.spare():
            self._session.send(Delete(path, -1))
