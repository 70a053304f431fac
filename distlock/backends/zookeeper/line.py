"""What this process has in the lines of one session: entering, looking what is before us, leaving.

The node that is first has the lock. A contender with no node before its own when it was made need not say so.
The others acknowledge that they are first by writing to their node. Until then those behind may send it away
(`distlock.backends.zookeeper.head`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, GetChildren2, SetData

from distlock import clock
from distlock.backends.base import Ask, Busy, Held, Queued, Sink
from distlock.backends.zookeeper.announcements import Announcements
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.head import foreign, look_at, send_away
from distlock.backends.zookeeper.joining import Joining
from distlock.backends.zookeeper.looking import Looking
from distlock.backends.zookeeper.nodes import POLL, Node, in_line, lock_path
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.strays import Strays
from distlock.backends.zookeeper.unanswered import Unanswered
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
        self._waiting: dict[str, Node] = {}
        self._mutex = threading.Lock()
        self._base = base
        self._ack_window = ack_window
        self._sink = sink
        self._joining = Joining(session, base, self.strays, self.parents)
        self.looking = Looking(session, base)
        self.announcements = Announcements(session, base)

    # -- what the engine asks for ----------------------------------------------------------------

    def request(self, ask: Ask, deadline: Deadline) -> Held | Queued | Busy:
        while True:
            try:
                if (before := self.unanswered.lost(ask.key)) is not None:
                    self.cancel(before, deadline)
                answer = self._request(ask, deadline)
            except Broken:
                # On the next connection it can be found out what became of it.
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise
                continue
            if answer is not None:
                return answer

    def cancel(self, ask: Ask, deadline: Deadline) -> bool:
        node = self.current(ask.token)
        if node is None:
            for path in self.strays.find(ask.token, ask.key, deadline):
                self._delete(path, ask, deadline)
            self.strays.claim(ask.token)
            return False
        if node.held:
            return True
        names = self.looking.names(node.parent, deadline)
        if names[:1] == [node.name] and self._take(node, deadline):
            node.held = True
            return True
        self._leave(node, deadline)
        return False

    def renew(self, asks: Sequence[Ask], deadline: Deadline) -> list[bool]:
        began = clock.now()
        answers, looks = [False] * len(asks), []
        for number, ask in enumerate(asks):
            if (node := self.current(ask.token)) is not None:
                looks.append((number, node))
            elif ask.token not in self.nodes:
                answers[number] = self.looking.is_first(ask, deadline)
        if not looks:
            return answers
        requests = [self.session.wire.barrier(self._base)]
        # They have no children and never will: the watch tells at once when somebody breaks the lock, and is
        # left behind nowhere.
        requests += [GetChildren2(node.path, Watcher(self.broken, node.ask.token)) for _, node in looks]
        for (number, node), answer in zip(looks, self.session.ask(requests, deadline)[1:], strict=True):
            if isinstance(answer, NoNodeError) or self._checked(answer)[1].czxid != node.czxid:
                self._drop(node)
            else:
                answers[number] = self._keep(node, began)
        return answers

    def release(self, ask: Ask, deadline: Deadline) -> bool:
        return (node := self.current(ask.token)) is not None and self._leave(node, deadline) and node.held

    def post(self, ask: Ask, told: Callable[[bool | None], None]) -> bool:
        """Send the release. False: it has to be awaited."""
        if (node := self.current(ask.token)) is None or not (node.held and self.session.connected):
            return False
        self._drop(node)
        self.unanswered.post(node.path, ask, told)
        self._spare(node.parent)
        return True

    def locked(self, key: str, deadline: Deadline) -> bool:
        return bool(self.looking.names(lock_path(self._base, key), deadline))

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
                if self.current(node.ask.token) is node:
                    continue
                if node.owner == self.session.id:
                    self.strays.add(node.ask.token, node.ask.key, new=not node.held)
                self._drop(node)

    # -- kazoo's thread --------------------------------------------------------------------------

    def moved(self, key: str, path: str) -> None:
        """A node that we watch is gone."""
        node = self._waiting.get(key)
        if node is not None and node.watched == (self.session.connections, path):
            node.called = True
        self._sink.hint(key)

    def broken(self, token: str, path: str) -> None:
        """A node of ours is gone. If it was not we who deleted it, it is lost."""
        node = self.nodes.get(token)
        if node is not None and node.path == path:
            self._drop(node)
            self._sink.lost(node.ask.key, token)

    # -- how it is done --------------------------------------------------------------------------

    def _request(self, ask: Ask, deadline: Deadline) -> Held | Queued | Busy | None:
        """One attempt; None if the line has moved meanwhile."""
        began = clock.now()
        node = self.current(ask.token)
        if node is None:
            if ask.token in self.nodes:
                self.give_up()
            node, alone = self._joining.join(ask, began, deadline)
            self.nodes[ask.token] = node
        else:
            alone = False
        taken = alone or node.held
        if alone:
            names = [node.name]
        elif node.called:
            # Most likely we are first; certainly, where only one was before us.
            names, taken = self._take(node, deadline, look=not node.second), True
        else:
            names = self.looking.names(node.parent, deadline, fresh=node.held)
        if node.name not in names or not self._keep(node, began):
            self._drop(node)
            return None
        before = names[: names.index(node.name)]
        if before:
            if ask.wait:
                return self._wait(node, before, deadline)
            (head,) = self.session.ask([look_at(node, before[0])], deadline)
            self._recognise(node, before[0], head, deadline)
            self._leave(node, deadline)
            return Busy()
        if not taken and not self._take(node, deadline):
            self._drop(node)
            return None
        self._unqueue(node)
        return node.hold() if self._keep(node, began) else None

    def _wait(self, node: Node, before: list[str], deadline: Deadline) -> Queued | None:
        node.called = False
        node.first = node.first or before[0]
        pause = None
        if before[0] != node.first:
            pause = send_away(self.session, node, before[0], self._ack_window, deadline)
            if pause == 0.0:
                return None
        watch = (self.session.connections, f"{node.parent}/{before[-1]}")
        requests = [look_at(node, before[0])]
        if node.watched != watch:
            node.watched, node.second = watch, len(before) == 1
            self._waiting[node.ask.key] = node
            # It has no children and never will. Of all watches this is the one that acknowledging does not
            # wake, and that is not left behind where the node is gone already.
            requests.append(GetChildren(watch[1], Watcher(self.moved, node.ask.key)))
        head, *answers = self.session.exchange(requests, deadline)
        self._recognise(node, before[0], head, deadline)
        for answer in answers:
            if isinstance(answer, NoNodeError):
                node.watched = (0, "")
                return None
            self._checked(answer)
        if pause is None:
            pause = POLL * (0.75 + 0.25 * random.random())  # noqa: S311 - spreads clients, hides nothing
        return Queued(pause)

    def _recognise(self, node: Node, head: str, stat: Any, deadline: Deadline) -> None:
        """Leave the line, and say so, if *head* is nobody's: it would be waited for in vain."""
        if (found := foreign(self.session.address, node, head, stat)) is not None:
            self._leave(node, deadline)
            raise found

    def _take(self, node: Node, deadline: Deadline, look: bool = False) -> list[str]:
        """Acknowledge, and read the line if we are to *look*. Nobody, if we were sent away.

        If we turn out not to be first we have acknowledged too early. That costs nothing.
        """
        requests = [SetData(node.path, self.session.wire.lifetime, -1)]
        if look:
            requests.insert(0, GetChildren(node.parent, None))
        *seen, answer = self.session.ask(requests, deadline)
        if isinstance(answer, NoNodeError):
            return []
        self._checked(answer)
        return in_line(self._checked(seen[0])) if look else [node.name]

    def _leave(self, node: Node, deadline: Deadline) -> bool:
        self._drop(node)
        return self._delete(node.path, node.ask, deadline, node.owner)

    def _delete(self, path: str, ask: Ask, deadline: Deadline, owner: int | None = None) -> bool:
        """Delete a node of *ask*. False if it was gone already."""
        tried = False
        try:
            while True:
                try:
                    (answer,) = self.session.exchange([Delete(path, -1)], deadline)
                    break
                except Broken:
                    deadline = deadline.extended()
                    if clock.now() >= deadline:
                        raise
                    tried = True
        except BaseException:
            self.strays.add(ask.token, ask.key)
            raise
        self._spare(lock_path(self._base, ask.key))
        if isinstance(answer, NoNodeError):
            # If its session lives, it was our first attempt that deleted it.
            return tried and owner == self.session.id
        self._checked(answer)
        return True

    def _spare(self, parent: str) -> None:
        self.parents.put(parent)
        if self.parents.many:
            self.tidy()

    def tidy(self) -> None:
        """Remove the nodes of locks that are not used any more; those that are in use do not let us."""
        for path in self.parents.spare():
            self.session.send(Delete(path, -1))

    def _keep(self, node: Node, began: float) -> bool:
        """Somebody cares for it, as of *began*. False if it was given up meanwhile."""
        with self._mutex:
            if self.current(node.ask.token) is not node:
                return False
            node.seen = began
            return True

    def _drop(self, node: Node) -> None:
        self._unqueue(node)
        self.nodes.pop(node.ask.token, None)

    def _unqueue(self, node: Node) -> None:
        node.called = False
        # What is given up late may not take its successor along.
        if self._waiting.get(node.ask.key) is node:
            self._waiting.pop(node.ask.key, None)

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self.session.address, answer)
        return answer
