"""What this process has in the lines of one session: entering, looking what is before us, leaving.

The nodes that are first have the lock (`distlock.backends.zookeeper.sharing`). A contender that could enter
when its node was made need not say so. The others acknowledge that they do by writing to their node. Until
then those behind may send it away (`distlock.backends.zookeeper.head`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import GetData

from distlock import clock
from distlock.backends.base import PERMIT, Acquired, Busy, LockRequest, Queued, Sink
from distlock.backends.zookeeper.announcements import Announcements
from distlock.backends.zookeeper.answer import Answer
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges, run
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.head import Foreign, line_of, look_at, refuse_foreign
from distlock.backends.zookeeper.joining import Joining
from distlock.backends.zookeeper.latches import Latches
from distlock.backends.zookeeper.leaving import Leaving
from distlock.backends.zookeeper.looking import Looking
from distlock.backends.zookeeper.nodes import Node
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.sharing import followed, in_the_way, other_limit
from distlock.backends.zookeeper.strays import Strays
from distlock.backends.zookeeper.taking import to_take
from distlock.backends.zookeeper.unanswered import Unanswered
from distlock.backends.zookeeper.waiting import Waiting
from distlock.backends.zookeeper.wanted import is_wanted, reading, rewrite
from distlock.backends.zookeeper.watcher import Watcher


class Line:
    """Threads share it. *sink* is told when it is worth asking for a key again, and of lost holds."""

    def __init__(self, session: Session, base: str, ack_window: float, sink: Sink) -> None:
        self.session = session
        self.strays = Strays(session, base)
        self.unanswered = Unanswered(session, self.strays)
        self.parents = Parents()
        #: By token.
        self.nodes: dict[str, Node] = {}
        self._mutex = threading.Lock()
        self._base = base
        self._sink = sink
        self._waiting = Waiting(session, ack_window, sink)
        self._joining = Joining(session, base, self.strays, self.parents)
        self.leaving = Leaving(session, self.strays, self.parents)
        self.looking = Looking(session, base)
        self.announcements = Announcements(session, base)
        self.latches = Latches(session, base, sink)

    # -- what the engine asks for ----------------------------------------------------------------

    def request(self, request: LockRequest, deadline: Deadline) -> Exchanges[Acquired | Queued | Busy]:
        while True:
            try:
                answer = yield from self._request(request, deadline)
                if isinstance(answer, Acquired):
                    return answer
                # By now it is known whether a node that we had was deleted, or is the one before us.
                if (before := self.unanswered.lost(request.key)) is not None:
                    yield from self.cancel(before, deadline)
                elif answer is not None:
                    return answer
            except Broken:
                # On the next connection it can be found out what became of it.
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise

    def cancel(self, request: LockRequest, deadline: Deadline) -> Exchanges[bool]:
        node = self.current(request.token)
        if node is None:
            for path in (yield from self.strays.find(request.token, request.key, deadline)):
                yield from self.leaving.delete(path, request, deadline)
            self.strays.claim(request.token)
            return False
        if node.held:
            return True
        try:
            enters = yield from self._may_enter(node, deadline)
        except Foreign:
            # The next request is told. Cancelling only has to delete the node.
            enters = False
        if enters and (yield from self._take(node, deadline)):
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
                answers[number] = self.looking.is_held(request, deadline)
        if not looks:
            return answers
        requests = [self.session.wire.barrier(self._base)]
        requests += [self._watched(node) for _, node in looks]
        for (number, node), answer in zip(looks, self.session.ask(requests, deadline)[1:], strict=True):
            if isinstance(answer, NoNodeError) or self._checked(answer)[1].czxid != node.czxid:
                self._drop(node)
            else:
                answers[number] = self._keep(node, began)
                self._tell_wanted(node.request, answer[0])
        return answers

    def release(self, request: LockRequest, deadline: Deadline) -> bool:
        node = self.current(request.token)
        return node is not None and run(self._leave(node, deadline)) and node.held

    def post(self, request: LockRequest, told: Callable[[bool | None], None]) -> bool:
        """Send the release. False: it has to be awaited."""
        if (node := self.current(request.token)) is None or not (node.held and self.session.connected):
            return False
        self._drop(node)
        self.unanswered.post(node.path, request, told)
        self.leaving.spare(node.parent)
        return True

    def downgrade(self, request: LockRequest, deadline: Deadline) -> Exchanges[bool]:
        """See `distlock.backends.shared.Reads`.

        The node stays where it is, for writers and older clients wait for it to go. Readers see what it says.
        """
        node = self.current(request.token)
        if node is None or not (node.held or (yield from self._may_enter(node, deadline))):
            return False
        if not (yield from rewrite(self.session, node.path, reading, deadline)):
            self._drop(node)
            return False
        # With its session it would have been lost.
        node.held = self.current(request.token) is node
        return node.held

    def locked(self, key: str, deadline: Deadline) -> bool:
        return bool(run(self.looking.line(key, deadline)))

    # -- for the janitor -------------------------------------------------------------------------

    def current(self, token: str) -> Node | None:
        """The node of *token*, if it stands in line still."""
        node = self.nodes.get(token)
        if node is None or node.owner != self.session.id or node.lapsed(clock.now()):
            return None
        return node

    def give_up(self) -> None:
        """Give up the nodes that stand in no line any more. What our session has of them are strays."""
        for node in list(self.nodes.values()):
            with self._mutex:
                if self.current(node.request.token) is node:
                    continue
                if node.owner == self.session.id:
                    self.strays.add(node.request.token, node.request.key, new=not node.held)
                self._drop(node)

    # -- kazoo's thread --------------------------------------------------------------------------

    def broken(self, token: str, path: str) -> None:
        """A node of ours is gone. If it was not we who deleted it, it is lost."""
        node = self.nodes.get(token)
        if node is not None and node.path == path:
            self._drop(node)
            self._sink.lost(node.request.key, token)

    def written(self, token: str, path: str) -> None:
        """Somebody has written to a node of ours."""
        node = self.nodes.get(token)
        if node is not None and node.path == path:
            self.session.wire.submit([self._watched(node)], partial(self._read, node.request))

    # -- how it is done --------------------------------------------------------------------------

    def _request(
        self, request: LockRequest, deadline: Deadline
    ) -> Exchanges[Acquired | Queued | Busy | None]:
        """One attempt; None if the line has moved meanwhile."""
        began = clock.now()
        node = self.current(request.token)
        if node is None:
            if request.token in self.nodes:
                self.give_up()
            node, names = yield from self._joining.join(request, began, deadline)
            self.nodes[request.token] = node
            # All see that it could enter when it came, if it could.
            taken = names is not None
        else:
            names, taken = None, node.held
        if names is None:
            try:
                if node.called and node.watch is not None:
                    # Most likely we may enter.
                    names, taken = (yield from self._take(node, deadline, look=True)), True
                else:
                    names = yield from self.looking.line(request.key, deadline, fresh=node.held)
            except Foreign:
                yield from self._leave(node, deadline)
                raise
        if node.name not in names or not self._keep(node, began):
            self._drop(node)
            return None
        place = names.index(node.name)
        if rivals := self._rivals(node, names[:place]):
            return (yield from self._stand(node, names[:place], rivals, deadline))
        if not taken and not (yield from self._take(node, deadline)):
            self._drop(node)
            return None
        self._waiting.forget(node)
        other = other_limit(names, request.limit) if request.mode == PERMIT else 0
        return node.hold(request, followed(names[place + 1 :]), other) if self._keep(node, began) else None

    def _watched(self, node: Node) -> GetData:
        """What it says. The watch tells at once when somebody breaks the lock or wants it, and is left behind
        nowhere.
        """
        return GetData(node.path, Watcher(self.broken, node.request.token, self.written))

    def _read(self, request: LockRequest, answer: Answer) -> None:
        if answer.error is None:
            self._tell_wanted(request, answer.get()[0])

    def _tell_wanted(self, request: LockRequest, data: bytes) -> None:
        if is_wanted(data):
            self._sink.release_requested(request.key, request.token)

    def _rivals(self, node: Node, before: Sequence[str]) -> Sequence[str]:
        """Those of *before* that keep *node* out, as far as we know."""
        rivals = in_the_way(before, node.name)
        return () if rivals == [node.opened] else rivals

    def _may_enter(self, node: Node, deadline: Deadline) -> Exchanges[bool]:
        names = yield from self.looking.line(node.request.key, deadline)
        if node.name not in names:
            return False
        rivals = self._rivals(node, names[: names.index(node.name)])
        return not rivals or (yield from self._waiting.lets_in(node, rivals, deadline))

    def _stand(
        self, node: Node, before: Sequence[str], rivals: Sequence[str], deadline: Deadline
    ) -> Exchanges[Queued | Busy | None]:
        """What there is to do where *before* are before *node*, and *rivals* of them keep it out.

        None if the line has moved meanwhile.
        """
        try:
            if node.request.wait:
                return (yield from self._waiting.wait(node, before, rivals, deadline))
            if (yield from self._waiting.lets_in(node, rivals, deadline)):
                return None
            (head,) = yield from self.session.asking([look_at(node, before[0])], deadline)
            refuse_foreign(self.session.address, node, before[0], head)
        except Foreign:
            yield from self._leave(node, deadline)
            raise
        yield from self._leave(node, deadline)
        return Busy()

    def _take(self, node: Node, deadline: Deadline, look: bool = False) -> Exchanges[list[str]]:
        """The line when *node* has the lock, if we are to *look*. Nothing where it was sent away."""
        taking, node.taking = node.taking, None
        said = None if taking is None else taking.said()
        if said is None:
            said = yield from self.session.asking(to_take(node, self.session.wire, look), deadline)
        answer, *seen = said
        if isinstance(answer, NoNodeError):
            return []
        if not isinstance(answer, BadVersionError):
            self._checked(answer)
        if not seen:
            return [node.name]
        return line_of(self.session.address, node.request.key, node.parent, self._checked(seen[0]))

    def _leave(self, node: Node, deadline: Deadline) -> Exchanges[bool]:
        self._drop(node)
        return (yield from self.leaving.delete(node.path, node.request, deadline, node.owner))

    def _keep(self, node: Node, began: float) -> bool:
        """Somebody cares for it, as of *began*. False if it was given up meanwhile."""
        with self._mutex:
            if self.current(node.request.token) is not node:
                return False
            node.seen = began
            return True

    def _drop(self, node: Node) -> None:
        self._waiting.forget(node)
        self.nodes.pop(node.request.token, None)

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self.session.address, answer)
        return answer
