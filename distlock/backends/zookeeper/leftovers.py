"""Nodes to delete later: of requests whose replies were lost, of pending releases, and of unused locks.

If the reply to a request is lost, its node may exist, and would block the queue as long as the session lives.
A release is sent without waiting for its reply, because the session's next request is carried out after it.
The node of a lock is a container. The server removes containers only once a minute, and to delete the node
after each use would double the writes of a lock. So we delete the nodes that have been unused for some time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.zookeeper.nodes import in_order, lock_path, prefix_of
from distlock.backends.zookeeper.sans_io import Deadline, Exchanges, ZooKeeperReply, run
from distlock.backends.zookeeper.session import ZooKeeperSession, children


class Leftovers:
    """Tokens that may have a node, and should have none. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, base: str) -> None:
        self._session = session
        self._base = base
        #: By token: its key, and whether no caller knows of its node.
        self._tokens: dict[str, tuple[str, bool]] = {}
        #: The paths of nodes that were found, until they are gone. No request may use them any more.
        self._doomed: set[str] = set()
        #: `add` works without it: it is called wherever a generator is closed, also in the middle of `claim`.
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens) + len(self._doomed)

    def add(self, token: str, key: str, new: bool = False) -> None:
        """Add *token*. If it is *new*, no caller knows of its node, and a later request may use it."""
        self._tokens[token] = (key, new)

    def claim(self, token: str) -> bool | None:
        """Remove *token*, and leave its node to the caller. Return whether it is new; None: not found."""
        with self._mutex:
            _, new = self._tokens.pop(token, ("", None))
        return new

    def is_doomed(self, path: str) -> bool:
        """Return whether the node at *path* is being deleted, so that no request may use it."""
        return path in self._doomed

    def find(self, token: str, key: str, deadline: Deadline) -> Exchanges[list[str]]:
        """Return the paths of the nodes of *token*, the first in the queue first.

        All earlier requests were carried out before.
        """
        parent, prefix = lock_path(self._base, key), prefix_of(token)
        names = yield from children(self._session, parent, deadline, barrier=self._base)
        return [f"{parent}/{name}" for name in in_order(names) if name.startswith(prefix)]

    def sweep(self, deadline: Deadline) -> None:
        """Look for the nodes of all tokens, and delete them."""
        self._delete(deadline)
        for token, entry in list(self._tokens.items()):
            found = run(self.find(token, entry[0], deadline))
            with self._mutex:
                # A caller that repeats its request may have claimed the token, and its node with it. It may
                # also have added the token again, with another node, which the next sweep finds.
                if self._tokens.get(token) is entry:
                    self._doomed.update(found)
                    del self._tokens[token]
            self._delete(deadline)

    def _delete(self, deadline: Deadline) -> None:
        for path in list(self._doomed):
            # Keep the path until the server has answered, because a forgotten node would block the queue.
            self._session.ask([Delete(path, -1)], deadline, KazooException)
            self._doomed.discard(path)


#: Seconds that the node of an unused lock is kept, and the largest number of such nodes.
_IDLE = 5.0
_MOST = 1000


class LockNodes:
    """Paths of the nodes of unused locks, the most recently used one last. Thread-safe.

    The server may have removed such a node already.
    """

    def __init__(self) -> None:
        self._used: OrderedDict[str, float] = OrderedDict()

    def take(self, path: str) -> bool:
        """Remove *path*, because it is about to be used. Return whether it most likely exists."""
        return self._used.pop(path, None) is not None

    def put(self, path: str) -> None:
        """Note that *path* was used."""
        self._used[path] = clock.now()

    def unused(self) -> list[str]:
        """Remove and return the paths to delete now. A lock that is used just now makes its node again."""
        unused = []
        oldest = clock.now() - _IDLE
        for path, used in list(self._used.items()):
            if used > oldest and len(self._used) <= _MOST:
                break
            if self._used.pop(path, None) is not None:
                unused.append(path)
        return unused

    @property
    def too_many(self) -> bool:
        return len(self._used) > _MOST

    def clear(self) -> list[str]:
        """Remove and return all paths."""
        paths = list(self._used)
        self._used.clear()
        return paths


@dataclass(slots=True, eq=False)
class ZooKeeperRelease:
    request: LockRequest
    notify: Callable[[bool | None], None]
    answer: ZooKeeperReply


class ZooKeeperReleases:
    """The pending releases of one session. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, leftovers: Leftovers) -> None:
        self._session = session
        self._leftovers = leftovers
        self._mutex = threading.Lock()
        #: The pending releases of each key. There may be several if the process reads or has permits.
        self._posted: dict[str, tuple[ZooKeeperRelease, ...]] = {}

    def post(self, path: str, request: LockRequest, notify: Callable[[bool | None], None]) -> None:
        """Send the deletion of the node at *path*. *notify*: see `distlock.backends.protocols.Posts`."""
        for before in self._answered(request.key):
            self._handle_reply(before)
        (answer,) = self._session.client.submit([Delete(path, -1)])
        with self._mutex:
            self._posted[request.key] = (
                *self._posted.get(request.key, ()),
                ZooKeeperRelease(request, notify, answer),
            )

    def lost(self, key: str) -> LockRequest | None:
        """Return a request for *key* whose node may still exist after its release; None: there is none."""
        for posted in self._answered(key):
            if self._handle_reply(posted) is None:
                return posted.request
        return None

    def finish(self, key: str, deadline: float) -> None:
        """Wait for the replies for *key* until *deadline*, because the next request uses another session."""
        for posted in self._posted.get(key, ()):
            posted.answer.wait(deadline - clock.now())

    def awaits(self, key: str) -> bool:
        """Return whether `finish` would wait."""
        return not all(posted.answer.ready() for posted in self._posted.get(key, ()))

    def settle(self, deadline: float) -> bool:
        """See `distlock.backends.protocols.Posts`."""
        for key in list(self._posted):
            self.finish(key, deadline)
            for posted in self._answered(key):
                self._handle_reply(posted)
        return not self._posted

    def _answered(self, key: str) -> list[ZooKeeperRelease]:
        return [posted for posted in self._posted.get(key, ()) if posted.answer.ready()]

    def _handle_reply(self, posted: ZooKeeperRelease) -> bool | None:
        """Read the reply, and forget *posted*. Unless the node was deleted, call *notify*.

        Return True if the node was deleted, False if it was gone, and None if that is unknown: then the node
        becomes a leftover.
        """
        ours: bool | None = True
        try:
            posted.answer.get()
        except NoNodeError:
            ours = False
        except KazooException:
            ours = None
            self._leftovers.add(posted.request.token, posted.request.key)
        if self._forget(posted) and not ours:
            posted.notify(ours)
        return ours

    def _forget(self, posted: ZooKeeperRelease) -> bool:
        """Remove *posted*. Return False if another thread has removed it already."""
        with self._mutex:
            before = self._posted.get(posted.request.key, ())
            left = tuple(one for one in before if one is not posted)
            if left:
                self._posted[posted.request.key] = left
            else:
                self._posted.pop(posted.request.key, None)
            return len(left) < len(before)
