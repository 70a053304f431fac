"""The contenders of one session: they join queues, hold locks, and leave.

The first nodes of a queue have the lock (see `distlock.backends.zookeeper.nodes`). A contender that was first
when its node was made has the lock at once. Any other contender acknowledges a hand-off by writing to its
node. Until then the contenders behind it may delete its node (see `distlock.backends.zookeeper.waiting`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete, Exists, GetChildren2, GetData

from distlock import clock
from distlock.backends.base import PERMIT, Acquired, Busy, LockRequest, Queued, Sink
from distlock.backends.zookeeper import inspection, nodes, waiting
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.inspection import QueueInspector, ZooKeeperStatus
from distlock.backends.zookeeper.latches import ZooKeeperLatches
from distlock.backends.zookeeper.leftovers import Leftovers, LockNodes, ZooKeeperReleases
from distlock.backends.zookeeper.sans_io import Deadline, Exchanges, ZooKeeperReply, run
from distlock.backends.zookeeper.session import ZooKeeperSession, make_nodes
from distlock.backends.zookeeper.waiting import Foreign, Node, Waiters, Watcher


class Contenders:
    """This process's nodes in the queues of one session. Thread-safe.

    *sink* is notified when a request should be repeated, and when a hold is lost or its release requested.
    """

    def __init__(self, session: ZooKeeperSession, base: str, ack_window: float, sink: Sink) -> None:
        self.session = session
        self.leftovers = Leftovers(session, base)
        self.releases = ZooKeeperReleases(session, self.leftovers)
        self.lock_nodes = LockNodes()
        #: Our nodes, by token.
        self.nodes: dict[str, Node] = {}
        self._mutex = threading.Lock()
        self._base = base
        self._sink = sink
        self._waiters = Waiters(session, ack_window, sink)
        self.status = ZooKeeperStatus(session, base)
        self.inspector = QueueInspector(session, base, self.status)
        self.latches = ZooKeeperLatches(session, base, sink)

    def current(self, token: str) -> Node | None:
        """Return the node of *token*; None if there is none, its session has ended, or it has lapsed."""
        node = self.nodes.get(token)
        if node is None or node.owner != self.session.id or node.lapsed(clock.now()):
            return None
        return node

    # -- the calls of the engine -----------------------------------------------------------------

    def request(self, request: LockRequest, deadline: Deadline) -> Exchanges[Acquired | Queued | Busy]:
        while True:
            try:
                answer = yield from self._request(request, deadline)
                if isinstance(answer, Acquired):
                    return answer
                # The replies to our earlier releases came before this answer. If a release failed, its node
                # may still be before the new node.
                if (before := self.releases.lost(request.key)) is not None:
                    yield from self.cancel(before, deadline)
                elif answer is not None:
                    return answer
            except Broken:
                # The next connection shows whether the request was carried out.
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise

    def cancel(self, request: LockRequest, deadline: Deadline) -> Exchanges[bool]:
        node = self.current(request.token)
        if node is None:
            for path in (yield from self.leftovers.find(request.token, request.key, deadline)):
                yield from self._delete(path, request, deadline)
            self.leftovers.claim(request.token)
            return False
        if node.held:
            return True
        try:
            enters = yield from self._may_enter(node, deadline)
        except Foreign:
            # The next request raises the error. A cancellation only deletes the node.
            enters = False
        if enters and (yield from self._acknowledge(node, deadline)):
            node.held = True
            return True
        yield from self._leave(node, deadline)
        return False

    def renew(self, requests: Sequence[LockRequest], deadline: Deadline) -> list[bool]:
        began = clock.now()
        answers, looks = [False] * len(requests), []
        for number, request in enumerate(requests):
            if (node := self.current(request.token)) is not None:
                looks.append((number, node))
            elif request.token not in self.nodes:
                answers[number] = self.inspector.is_held(request, deadline)
        if not looks:
            return answers
        requests = [self.session.client.barrier(self._base)]
        requests += [self._watched(node) for _, node in looks]
        _, *said = self.session.ask(requests, deadline, KazooException)
        for (number, node), answer in zip(looks, said, strict=True):
            if isinstance(answer, NoNodeError) or self.session.checked(answer)[1].czxid != node.czxid:
                self._drop(node)
            else:
                answers[number] = self._keep(node, began)
                self._note_release_requested(node.request, answer[0])
        return answers

    def release(self, request: LockRequest, deadline: Deadline) -> bool:
        node = self.current(request.token)
        return node is not None and run(self._leave(node, deadline)) and node.held

    def post(self, request: LockRequest, notify: Callable[[bool | None], None]) -> bool:
        """Send the release of a hold. Return False if nothing was sent: the caller has to call `release`."""
        if (node := self.current(request.token)) is None or not (node.held and self.session.connected):
            return False
        self._drop(node)
        self.releases.post(node.path, request, notify)
        self._put_aside(node.parent)
        return True

    def downgrade(self, request: LockRequest, deadline: Deadline) -> Exchanges[bool]:
        """See `distlock.backends.protocols.Reads`.

        The node keeps its name, so that writers and older versions still wait until it is gone. Readers see
        the downgrade in its data.
        """
        node = self.current(request.token)
        if node is None or not (node.held or (yield from self._may_enter(node, deadline))):
            return False
        if not (yield from inspection.rewrite(self.session, node.path, inspection.reading, deadline)):
            self._drop(node)
            return False
        # The node is not held any more if the session ended meanwhile.
        node.held = self.current(request.token) is node
        return node.held

    # -- nodes that have ended -------------------------------------------------------------------

    def give_up(self) -> None:
        """Forget the nodes that are not `current`. Those of our session become leftovers."""
        for node in list(self.nodes.values()):
            with self._mutex:
                if self.current(node.request.token) is node:
                    continue
                if node.owner == self.session.id:
                    self.leftovers.add(node.request.token, node.request.key, new=not node.held)
                self._drop(node)

    # -- called by kazoo's thread ----------------------------------------------------------------

    def broken(self, token: str, path: str) -> None:
        """Handle the end of our node at *path*. Unless we dropped the node before, its hold is lost."""
        node = self.nodes.get(token)
        if node is not None and node.path == path:
            self._drop(node)
            self._sink.lost(node.request.key, token)

    def written(self, token: str, path: str) -> None:
        """Handle a change of our node at *path*: read whether its release is requested."""
        node = self.nodes.get(token)
        if node is not None and node.path == path:
            self.session.client.submit([self._watched(node)], partial(self._read, node.request))

    # -- the steps of a request ------------------------------------------------------------------

    def _request(
        self, request: LockRequest, deadline: Deadline
    ) -> Exchanges[Acquired | Queued | Busy | None]:
        """Make one attempt. Return None if the queue has changed meanwhile: then make another one."""
        began = clock.now()
        node = self.current(request.token)
        if node is None:
            if request.token in self.nodes:
                self.give_up()
            node, names = yield from self._join(request, began, deadline)
            self.nodes[request.token] = node
            # *names*, if known, is the queue at the moment when the node was made. If the node may enter by
            # it, no acknowledgement is needed: see `nodes.silent`.
            taken = names is not None
        else:
            names, taken = None, node.held
        if names is None:
            try:
                if node.may_enter and node.watch is not None:
                    # The watch says that we may enter, so acknowledge and read in one round trip.
                    names, taken = (yield from self._acknowledge(node, deadline, look=True)), True
                else:
                    names = yield from self.inspector.queue(request.key, deadline, fresh=node.held)
            except Foreign:
                yield from self._leave(node, deadline)
                raise
        if node.name not in names:
            self._drop(node)
            return None
        if not self._keep(node, began):
            # The node has lapsed, but the server still has it.
            self.give_up()
            return None
        place = names.index(node.name)
        if rivals := self._rivals_of(node, names[:place]):
            return (yield from self._wait_or_leave(node, names[:place], rivals, deadline))
        if not taken and not (yield from self._acknowledge(node, deadline)):
            self._drop(node)
            return None
        self._waiters.forget(node)
        other = nodes.other_limit(names, request.limit) if request.mode == PERMIT else 0
        if not self._keep(node, began):
            return None
        return node.hold(request, nodes.followed(names[place + 1 :]), other)

    def _watched(self, node: Node) -> GetData:
        """Return the request that reads *node* and watches it for a break or a requested release."""
        return GetData(node.path, Watcher(self.broken, node.request.token, self.written))

    def _read(self, request: LockRequest, answer: ZooKeeperReply) -> None:
        if answer.error is None:
            self._note_release_requested(request, answer.get()[0])

    def _note_release_requested(self, request: LockRequest, data: bytes) -> None:
        if inspection.is_release_requested(data):
            self._sink.release_requested(request.key, request.token)

    def _rivals_of(self, node: Node, before: Sequence[str]) -> Sequence[str]:
        """Return those of *before* that keep *node* out; none if the only one is `Node.harmless_writer`."""
        rivals = nodes.rivals_of(before, node.name)
        return () if rivals == [node.harmless_writer] else rivals

    def _may_enter(self, node: Node, deadline: Deadline) -> Exchanges[bool]:
        names = yield from self.inspector.queue(node.request.key, deadline)
        if node.name not in names:
            return False
        rivals = self._rivals_of(node, names[: names.index(node.name)])
        return not rivals or (yield from self._waiters.finds_downgraded_rival(node, rivals, deadline))

    def _wait_or_leave(
        self, node: Node, before: Sequence[str], rivals: Sequence[str], deadline: Deadline
    ) -> Exchanges[Queued | Busy | None]:
        """Wait behind *before*, of which *rivals* keep *node* out, or leave if the request does not wait.

        Return None if *node* may enter by now, or the queue has changed.
        """
        try:
            if node.request.wait:
                return (yield from self._waiters.wait(node, before, rivals, deadline))
            if (yield from self._waiters.finds_downgraded_rival(node, rivals, deadline)):
                return None
            yield from waiting.refuse_foreign_head(self.session, node, before[0], deadline)
        except Foreign:
            yield from self._leave(node, deadline)
            raise
        yield from self._leave(node, deadline)
        return Busy()

    def _acknowledge(self, node: Node, deadline: Deadline, look: bool = False) -> Exchanges[list[str]]:
        """Acknowledge the lock for *node*, or read the replies to an acknowledgement that was sent before.

        *look*: read the queue, too. Return the queue if it was read, else only the name of *node*; [] if the
        node was deleted.
        """
        pending, node.acknowledgement = node.acknowledgement, None
        answers = None if pending is None else pending.answers()
        if answers is None:
            requests = waiting.acknowledgement_requests(node, self.session.client, look)
            answers = yield from self.session.asking(requests, deadline, NoNodeError, BadVersionError)
        answer, *seen = answers
        if isinstance(answer, NoNodeError):
            return []
        if not seen:
            return [node.name]
        names = self.session.checked(seen[0])
        return waiting.queue_of(self.session.address, node.request.key, node.parent, names)

    def _join(
        self, request: LockRequest, began: float, deadline: Deadline
    ) -> Exchanges[tuple[Node, list[str] | None]]:
        """Make a node at the end of the queue, or find the node of an earlier attempt.

        Return the node, and the queue up to the node; None for the queue if it is unknown.
        """
        was_new = self.leftovers.claim(request.token)
        if was_new is not None:
            found = yield from self._find_again(request, was_new, began, deadline)
            if found is not None:
                return found, None
        parent = nodes.lock_path(self._base, request.key)
        there = self.lock_nodes.take(parent)
        while True:
            yield from self.session.connecting(deadline)
            client, owner = self.session.client, self.session.id
            requests = [GetChildren2(parent, None), client.contender(parent, nodes.contender_prefix(request))]
            if not there:
                requests.insert(0, client.container(parent))
            try:
                answers = yield from self.session.exchanging(requests, deadline, KazooException)
            except BaseException:
                self.leftovers.add(request.token, request.key, new=True)
                raise
            errors = [answer for answer in answers if isinstance(answer, KazooException)]
            for error in errors:
                if not isinstance(error, NodeExistsError | NoNodeError):
                    self.session.checked(error)
            *_, listed, made = answers
            if made not in errors:
                break
            if clock.now() >= deadline:
                raise unavailable(
                    self.session.address,
                    KazooTimeoutError(f"the nodes above {parent} could not be made in time ({made!r})"),
                )
            if not there and isinstance(answers[0], NoNodeError):
                yield from make_nodes(self.session, self._base, deadline)
            # If the lock's node was there when we used it last, the server or another process has removed it.
            there = False
        if owner is None or owner != self.session.id:
            # A new session began meanwhile. Only the server knows which of the two has the node.
            self.leftovers.add(request.token, request.key, new=True)
            raise Broken(f"The session with ZooKeeper at {self.session.address.shown} ended.")
        path, stat = made
        node = self._found(request, path, owner, stat.czxid, began)
        return node, self._queue_before(node, listed)

    def _queue_before(
        self, node: Node, listed: tuple[Sequence[str], Any] | KazooException
    ) -> list[str] | None:
        """Return the queue up to *node*, by *listed*, the children just before *node* was made.

        Return None if that is unknown, for example because another node was made in between.
        """
        if isinstance(listed, KazooException):
            return None
        names, stat = listed
        node.earlier = nodes.in_order(names)
        if len(node.earlier) < len(names) or nodes.sequence_of(node.name) != nodes.next_sequence(stat):
            return None
        return [*node.earlier, node.name]

    def _find_again(
        self, request: LockRequest, new: bool, began: float, deadline: Deadline
    ) -> Exchanges[Node | None]:
        """Return the node of an attempt whose reply was lost; None: there is none.

        Delete nodes of *request* that it can't use. *new*: see `Leftovers.add`.
        """
        found: Node | None = None
        try:
            for path in (yield from self.leftovers.find(request.token, request.key, deadline)):
                if self.leftovers.is_doomed(path):
                    continue
                (stat,) = yield from self.session.asking([Exists(path, None)], deadline)
                usable = new and found is None and stat is not None
                if usable and stat.ephemeralOwner == self.session.id:
                    found = self._found(request, path, stat.ephemeralOwner, stat.czxid, began)
                    continue
                # The engine has given this node up already, the node belongs to an earlier session, or two
                # attempts have each made one.
                yield from self.session.asking([Delete(path, -1)], deadline, KazooException)
        except BaseException:
            self.leftovers.add(request.token, request.key, new)
            raise
        return found

    def _found(self, request: LockRequest, path: str, owner: int, czxid: int, began: float) -> Node:
        parent, _, name = path.rpartition("/")
        nodes.check_sequence(name)
        return Node(request, parent, name, owner, czxid, began)

    def _leave(self, node: Node, deadline: Deadline) -> Exchanges[bool]:
        self._drop(node)
        return (yield from self._delete(node.path, node.request, deadline, node.owner))

    def _keep(self, node: Node, began: float) -> bool:
        """Note that *node* was requested or renewed at *began*. Return False if it is not `current`."""
        with self._mutex:
            if self.current(node.request.token) is not node:
                return False
            node.seen = began
            return True

    def _drop(self, node: Node) -> None:
        self._waiters.forget(node)
        self.nodes.pop(node.request.token, None)

    def _delete(
        self, path: str, request: LockRequest, deadline: Deadline, owner: int | None = None
    ) -> Exchanges[bool]:
        """Delete a node of *request*. Return False if it was gone already.

        If the outcome is unknown, the node becomes a leftover.
        """
        tried = False
        try:
            while True:
                try:
                    deletion = [Delete(path, -1)]
                    (answer,) = yield from self.session.exchanging(deletion, deadline, KazooException)
                    break
                except Broken:
                    deadline = deadline.extended()
                    if clock.now() >= deadline:
                        raise
                    tried = True
        except BaseException:
            self.leftovers.add(request.token, request.key)
            raise
        self._put_aside(path.rpartition("/")[0])
        if isinstance(answer, NoNodeError):
            # Our first attempt deleted the node, unless its session has ended.
            return tried and owner == self.session.id
        self.session.checked(answer)
        return True

    def _put_aside(self, parent: str) -> None:
        """Record that the lock of the node *parent* is unused for now."""
        self.lock_nodes.put(parent)
        if self.lock_nodes.too_many:
            self.tidy()

    def tidy(self) -> None:
        """Delete the nodes of unused locks. ZooKeeper refuses to delete nodes with children."""
        for path in self.lock_nodes.unused():
            self.session.send(Delete(path, -1))
