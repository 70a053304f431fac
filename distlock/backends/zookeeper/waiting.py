"""Waiting in a queue: what our nodes watch, and the removal of a first node that does not react.

| our node wants | it watches | it may enter |
|---|---|---|
| the lock as a whole | the node before it | when that node is gone |
| to read | the nearest writer before it | when that writer is gone or was downgraded |
| permits, as the first waiter | all children of the lock's node | when enough permits are free |
| permits, behind other waiters | the node before it | not yet: that node has to enter or go first |

The process of the first node may hang while its session lives on. So a hand-off has to be acknowledged
within a window. An acknowledgement changes the version of a node, and other contenders delete a node only at
its first version, so exactly one of the two happens.

The first node may also belong to no session (made by hand, or copied), so that it never goes. Or a child is
no contender, but a lock of another library, which does not wait for ours. Both raise `Foreign`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, Exists, GetChildren, GetChildren2, GetData, SetData
from kazoo.protocol.states import EventType, WatchedEvent

from distlock import clock
from distlock.backends.base import READ, Acquired, LockRequest, Queued, Sink
from distlock.backends.zookeeper import nodes
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.client import ZooKeeperClient
from distlock.backends.zookeeper.sans_io import Deadline, Exchanges, ZooKeeperReply
from distlock.backends.zookeeper.session import ZooKeeperSession
from distlock.errors import BackendUnavailable, shown_as

#: The ``ephemeralOwner`` of persistent nodes and of containers.
_NOBODY = {0, -(2**63)}


@dataclass(slots=True, eq=False)
class Node:
    """One of our nodes in the queue for a lock."""

    request: LockRequest
    #: The path of the lock's node, and the name of this node below it.
    parent: str
    name: str
    #: The id of the session that made the node. The node ends with it.
    owner: int
    #: The transaction that made the node.
    czxid: int
    #: When the engine last requested or renewed the node's hold.
    seen: float
    #: Whether the node has the lock. Other contenders may not delete it then.
    held: bool = False
    #: The queue just before the node was made.
    earlier: Sequence[str] = ()
    #: Contenders before us that need not acknowledge the lock (any more); None until we wait.
    exempt: set[str] | None = None
    #: Contenders that were handed the lock and have not acknowledged it, and when we first saw that.
    unacknowledged_since: dict[str, float] = field(default_factory=dict)
    #: The latest watch.
    watch: NodeWatch | None = None
    #: The number of the connection that has the watch; 0: none has it.
    watched: int = 0
    #: Whether the watch said that we may enter.
    may_enter: bool = False
    #: A writer before us that keeps no readers out, because it is gone or was downgraded; "": none is known.
    harmless_writer: str = ""
    #: The acknowledgement that was sent before the waiter's next request, if any.
    acknowledgement: Acknowledgement | None = None

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}"

    def lapsed(self, now: float) -> bool:
        """Return whether the node has to go: the engine has not requested or renewed it for its ttl.

        A waiting node stays for at least four polls.
        """
        life = self.request.ttl if self.held else max(self.request.ttl, 4 * nodes.POLL)
        return now > self.seen + life

    def hold(self, request: LockRequest, followed: bool = False, other_limit: int = 0) -> Acquired:
        """Mark the node as held. Return the answer to *request*, whose mode may differ from the node's."""
        self.held = True
        if request.mode == READ:
            return Acquired(nodes.reading_number_of(self.czxid), request.ttl, followed)
        number = nodes.first_number_of(self.czxid, request.span)
        return Acquired(number, request.ttl, other_limit=other_limit)


@shown_as(BackendUnavailable)
class Foreign(BackendUnavailable):
    """The lock's node has a child that is no contender, or one that will never leave the queue."""


def remove_unresponsive(
    session: ZooKeeperSession, node: Node, names: Sequence[str], window: float, deadline: Deadline
) -> Exchanges[float | None]:
    """Delete those of *names*, the first nodes, that have not acknowledged the lock for *window* seconds.

    Curator's nodes stay, because Curator acknowledges nothing.

    Returns:
        In how many seconds to look again; 0: the queue has changed; None: no acknowledgement is missing.
    """
    assert node.exempt is not None
    looks = [name for name in names if name not in node.exempt and nodes.is_ours(name)]
    if not looks:
        return None
    now, pause, hanging = clock.now(), math.inf, []
    stats = yield from session.asking([Exists(f"{node.parent}/{name}", None) for name in looks], deadline)
    for name, stat in zip(looks, stats, strict=True):
        if stat is None:
            pause = 0.0
        elif stat.version:
            node.exempt.add(name)
        elif (left := node.unacknowledged_since.setdefault(name, now) + window - now) > 0:
            pause = min(pause, left)
        else:
            hanging.append(Delete(f"{node.parent}/{name}", 0))
    if hanging:
        yield from session.asking(hanging, deadline, NoNodeError, BadVersionError)
        return 0.0
    return None if pause == math.inf else pause


def refuse_foreign_head(
    session: ZooKeeperSession, node: Node, head: str, deadline: Deadline
) -> Exchanges[None]:
    """Raise `Foreign` if *head*, the first node of the queue of *node*, belongs to no session."""
    request = [Exists(f"{node.parent}/{head}", None)]
    (stat,) = yield from session.asking(request, deadline, KazooException)
    if not isinstance(stat, KazooException):
        refuse_foreign(session.address, node, head, stat)


def refuse_foreign(address: ZooKeeperAddress, node: Node, name: str, stat: Any) -> None:
    """Raise `Foreign` if the node *name* belongs to no session. *stat*: its state; None: it is gone."""
    if stat is None or stat.ephemeralOwner not in _NOBODY:
        return
    path = f"{node.parent}/{name}"
    raise Foreign(
        f"The lock {node.request.key!r} can't be had: its queue at ZooKeeper {address.hosts} has a node that "
        "belongs to no session, so nobody will ever release it. A person or a copy of the nodes has made it. "
        f"Find out which, then delete it: zkCli.sh delete {path}"
    )


def queue_of(address: ZooKeeperAddress, key: str, parent: str, names: Sequence[str]) -> list[str]:
    """Return the contenders in *names*, all the children of the lock's node *parent*, the first one first.

    Raises:
        Foreign: A child is no contender. Its program doesn't wait for ours, so both would have the lock.
    """
    queue = nodes.in_order(names)
    if len(queue) < len(names):
        path = f"{parent}/{min(set(names).difference(queue))}"
        raise Foreign(
            f"The lock {key!r} can't be had: its node at ZooKeeper {address.hosts} has a child that another "
            "program made, whose lock and distlock's don't exclude each other. Give that program a path of "
            f"its own. If nothing uses the child any more, delete it: zkCli.sh deleteall {path}"
        )
    return queue


class Waiters:
    """Our nodes that wait. Thread-safe. *sink* is notified when one may enter."""

    def __init__(self, session: ZooKeeperSession, ack_window: float, sink: Sink) -> None:
        self._session = session
        self._ack_window = ack_window
        self._sink = sink
        #: The node that waits, by key. A process has at most one waiting node in a queue.
        self._nodes: dict[str, Node] = {}

    def wait(
        self, node: Node, before: Sequence[str], rivals: Sequence[str], deadline: Deadline
    ) -> Exchanges[Queued | None]:
        """Watch for the moment when *node* may enter. Return how long to wait before the next poll.

        *before*: the nodes before it. *rivals*: those of *before* that keep it out. Return None if *node* may
        enter by now, or the queue has changed. Raises `Foreign` if the first or the watched node never goes.
        """
        node.may_enter, node.acknowledgement = False, None
        if node.exempt is None:
            # Contenders that were made behind others have to acknowledge the lock.
            node.exempt, node.earlier = nodes.silent(node.earlier, before), ()
        heads = before[: nodes.entered(before)]
        pause = yield from remove_unresponsive(self._session, node, heads, self._ack_window, deadline)
        if pause == 0.0:
            return None
        watch = watch_for(node, before, rivals)
        if node.watched != self._session.connections or node.watch is None or node.watch.path != watch.path:
            node.watch, node.watched = watch, self._session.connections
            self._nodes[node.request.key] = node
            if not (yield from self._watch(node, watch, deadline)):
                return None
        elif (yield from self.finds_downgraded_rival(node, rivals, deadline)):
            # This poll has found what the watch has not reported.
            return None
        else:
            yield from refuse_foreign_head(self._session, node, before[0], deadline)
        if pause is None:
            pause = nodes.POLL * (0.75 + 0.25 * random.random())  # noqa: S311 - spreads clients, hides nothing
        return Queued(pause)

    def finds_downgraded_rival(
        self, node: Node, rivals: Sequence[str], deadline: Deadline
    ) -> Exchanges[bool]:
        """Return whether *node* reads, and its only rival is a downgraded writer.

        Then the rival becomes `Node.harmless_writer`.
        """
        if len(rivals) != 1 or not nodes.is_reader(node.name):
            return False
        asked = [GetData(f"{node.parent}/{rivals[0]}", None)]
        (answer,) = yield from self._session.asking(asked, deadline, KazooException)
        if isinstance(answer, KazooException) or not says_that_it_reads(answer):
            return False
        node.harmless_writer = rivals[0]
        return True

    def _watch(self, node: Node, watch: NodeWatch, deadline: Deadline) -> Exchanges[bool]:
        """Set *watch* for *node*. Return False if what it watches for has happened already."""
        if not watch.last:
            # Other rivals stay before us in any case, so the caller need not wait for the answer.
            self._ask(node, watch)
            return True
        request = [self._request(node, watch)]
        (answer,) = yield from self._session.exchanging(request, deadline, NoNodeError)
        if isinstance(answer, NoNodeError):
            node.watched, node.may_enter = 0, True
            return False
        if watch.path != node.parent:
            refuse_foreign(self._session.address, node, watch.path.rpartition("/")[2], answer[1])
        if watch.opens(answer):
            self._note(node, watch)
            return False
        return True

    def _request(self, node: Node, watch: NodeWatch) -> Any:
        return watch.request(watch.path, Watcher(self.moved, node.request.key, self.changed))

    def forget(self, node: Node) -> None:
        """Note that *node* no longer waits."""
        node.may_enter, node.acknowledgement = False, None
        # A node that is given up late must not remove its successor.
        if self._nodes.get(node.request.key) is node:
            self._nodes.pop(node.request.key, None)

    # -- called by kazoo's thread ----------------------------------------------------------------

    def moved(self, key: str, path: str) -> None:
        """Handle the end of a watched node."""
        self._watch_fired(key, self._watching(key, path))

    def changed(self, key: str, path: str) -> None:
        """Handle a change of a watched node: set the watch again. The answer tells what has changed."""
        if (node := self._watching(key, path)) is not None and node.watch is not None:
            self._ask(node, node.watch)

    def _watching(self, key: str, path: str) -> Node | None:
        node = self._nodes.get(key)
        if node is None or node.watch is None or node.watch.path != path:
            return None
        return node if node.watched == self._session.connections else None

    def _ask(self, node: Node, watch: NodeWatch) -> None:
        """Set *watch* without waiting for the answer."""
        self._session.client.submit([self._request(node, watch)], partial(self._answered, node, watch))

    def _answered(self, node: Node, watch: NodeWatch, answer: ZooKeeperReply) -> None:
        """Handle the answer to *watch*. If the connection broke, the waiters send new requests."""
        if isinstance(answer.error, NoNodeError) or (answer.error is None and watch.opens(answer.get())):
            # *node* may have left meanwhile, and another node of ours may wait with another watch.
            current = self._nodes.get(node.request.key) is node and node.watch is watch
            self._watch_fired(node.request.key, node if current else None)

    def _watch_fired(self, key: str, node: Node | None) -> None:
        """Set the next watch of *node*, whose watch has fired, or acknowledge the lock, or notify the sink.

        None: no node of ours has that watch any more, so only notify.
        """
        if node is None or (watch := node.watch) is None:
            self._sink.notified(key)
        elif watch.then is not None:
            node.watch = watch.then
            self._ask(node, watch.then)
        else:
            if watch.takes:
                self._note(node, watch)
            if node.may_enter and node.request.prompt and node.request.mode != READ:
                self._acknowledge_early(node, watch)
            else:
                self._sink.notified(key)

    def _note(self, node: Node, watch: NodeWatch) -> None:
        """Note that *node* may enter by *watch*."""
        node.may_enter = True
        if nodes.is_reader(node.name):
            # Most likely the watched writer is gone. If it is still there, it was downgraded.
            node.harmless_writer = watch.path.rpartition("/")[2]

    def _acknowledge_early(self, node: Node, watch: NodeWatch) -> None:
        """Acknowledge the lock for a waiter before it wakes up, and wake it when the answer comes."""
        client, key, sent = self._session.client, node.request.key, clock.now()
        answers = client.submit(acknowledgement_requests(node, client), lambda _: self._sink.notified(key))
        node.acknowledgement = Acknowledgement(sent, answers)


class NodeWatch(NamedTuple):
    path: str
    #: The request that sets the watch: `GetChildren2` if only the end of the node matters, because an
    #: acknowledgement does not trigger a watch on children. Neither request sets a watch if the node is gone.
    request: type[GetChildren2] | type[GetData]
    #: Returns whether the answer to *request* says that we may enter.
    opens: Callable[[Any], bool]
    #: Whether nothing else keeps us out once the watch has fired.
    last: bool = False
    #: Whether we may acknowledge the lock as soon as the watch has fired.
    takes: bool = True
    #: The next watch, if we may not enter yet when this watch fires.
    then: NodeWatch | None = None


def watch_for(node: Node, before: Sequence[str], rivals: Sequence[str]) -> NodeWatch:
    """Return the watch for *node*. *before*: the contenders before it; *rivals*: those that keep it out."""
    path = f"{node.parent}/{rivals[-1]}"
    if nodes.is_reader(node.name):
        last = len(rivals) == 1
        return NodeWatch(path, GetData, says_that_it_reads, last, takes=last)
    if not nodes.wants_permits(node.name):
        last = len(rivals) == 1
        return NodeWatch(path, GetChildren2, _never, last)
    line = NodeWatch(node.parent, GetChildren2, lambda answer: _has_room(answer, node.name), True)
    return line if nodes.entered(before) == len(before) else NodeWatch(path, GetData, _has_entered, then=line)


def says_that_it_reads(answer: Any) -> bool:
    """Return whether *answer*, a node's data and stat, is from a writer that was downgraded."""
    data: bytes = answer[0]
    return data.endswith(nodes.READING)


def _never(_: Any) -> bool:
    return False


def _has_entered(answer: Any) -> bool:
    """Return whether the watched node has acknowledged the lock."""
    return bool(answer[1].version)


def _has_room(answer: Any, name: str) -> bool:
    names = nodes.in_order(answer[0])
    # If the node was deleted, its waiter has to be notified, too.
    return name not in names or not nodes.rivals_of(names[: names.index(name)], name)


#: Seconds after which an acknowledgement that was sent early is sent again. The ttl of a hold begins with the
#: waiter's request, but the session's timeout, which is only a little longer, with the last packet.
_FRESH = 0.1


class Acknowledgement(NamedTuple):
    """An acknowledgement that was sent before the waiter's request."""

    sent: float
    pending: list[ZooKeeperReply]

    def answers(self) -> list[Any] | None:
        """Return the answers. None: they are missing or too old, so send the requests again."""
        if clock.now() > self.sent + _FRESH or not self.pending[-1].ready():
            return None
        found = []
        for answer in self.pending:
            try:
                found.append(answer.get())
            except (NoNodeError, BadVersionError) as error:
                found.append(error)
            except KazooException:
                return None
        return found


def acknowledgement_requests(node: Node, client: ZooKeeperClient, look: bool = True) -> list[Any]:
    """Return the requests that acknowledge the lock for *node* and, with *look*, read the queue.

    To acknowledge a node that is not first does no harm. A node with another version than 0 has been
    acknowledged before, and its data must stay.
    """
    requests = [SetData(node.path, client.lifetime, 0)]
    if look:
        # The read takes no round trip of its own.
        requests.append(GetChildren(node.parent, None))
    return requests


@dataclass(frozen=True)
class Watcher:
    """The callback of a watch. kazoo keeps and calls only one of several equal callbacks."""

    #: Called with *key* and the path of the watched node when the node is gone.
    moved: Callable[[str, str], None]
    key: str
    #: Called with *key* and the path when the data or the children of the node have changed.
    changed: Callable[[str, str], None] | None = None

    def __call__(self, event: WatchedEvent) -> None:
        # kazoo also reports a lost connection. Waiters are notified when there is a new connection.
        if event.type == EventType.DELETED:
            self.moved(self.key, event.path)
        elif event.type in (EventType.CHANGED, EventType.CHILD) and self.changed is not None:
            self.changed(self.key, event.path)
