"""Nodes that should not be there: made or left by a request whose outcome is unknown.

Its reply was lost, or came too late for its caller. The node, if there is one, would stand in the
line for as long as the session lives, and nobody would take its turn.
"""

from __future__ import annotations

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren

from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges, run
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import lock_path, prefix_of
from distlock.backends.zookeeper.session import Session


class Strays:
    """Tokens that may have a node, and should have none. Threads share it."""

    def __init__(self, session: Session, base: str) -> None:
        self._session = session
        self._base = base
        #: Token -> key, and whether nobody was told of its node.
        self._tokens: dict[str, tuple[str, bool]] = {}
        #: Nodes that were found and that nobody may claim any more, until they are known to be gone.
        self._doomed: set[str] = set()

    def __len__(self) -> int:
        return len(self._tokens) + len(self._doomed)

    def add(self, token: str, key: str, new: bool = False) -> None:
        """*new*: nobody was told of its node, so that it is as good as one that is made now."""
        self._tokens[token] = (key, new)

    def claim(self, token: str) -> bool | None:
        """None if *token* is none; else whether it is new. The caller sees to its node, if there is one."""
        _, new = self._tokens.pop(token, ("", None))
        return new

    def find(self, token: str, key: str, deadline: Deadline) -> Exchanges[list[str]]:
        """The paths of the nodes of *token*. What was sent before has been done by then, or never will be."""
        parent = lock_path(self._base, key)
        barrier = self._session.wire.barrier(self._base)
        _, listed = yield from self._session.asking([barrier, GetChildren(parent, None)], deadline)
        if isinstance(listed, NoNodeError):
            return []
        if isinstance(listed, KazooException):
            raise unavailable(self._session.address, listed)
        prefix = prefix_of(token)
        return [f"{parent}/{name}" for name in listed if name.startswith(prefix)]

    def sweep(self, deadline: Deadline) -> None:
        """Look for all of them, and delete what is found."""
        self._delete(deadline)
        for token, (key, _) in list(self._tokens.items()):
            found = run(self.find(token, key, deadline))
            # A caller that asked again for the same token has claimed it, and its node with it.
            if self.claim(token) is not None:
                self._doomed.update(found)
                self._delete(deadline)

    def _delete(self, deadline: Deadline) -> None:
        for path in list(self._doomed):
            # Not forgotten before it is answered: a node that is left would keep everybody waiting.
            self._session.ask([Delete(path, -1)], deadline)
            self._doomed.discard(path)
