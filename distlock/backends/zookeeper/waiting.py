"""Standing in line: one watch on what may let us in, and a look at the first ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import GetData

from distlock import clock
from distlock.backends.base import READ, Queued, Sink
from distlock.backends.zookeeper.answer import Answer
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.head import look_at, refuse_foreign, send_away
from distlock.backends.zookeeper.nodes import POLL, Node
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.sharing import entered, is_reader, silent
from distlock.backends.zookeeper.taking import Taking, to_take
from distlock.backends.zookeeper.watch import Watch, says_that_it_reads, watch_for
from distlock.backends.zookeeper.watcher import Watcher


class Waiting:
    """Our nodes that have to wait. Threads share it. *sink* is told when one may enter."""

    def __init__(self, session: Session, ack_window: float, sink: Sink) -> None:
        self._session = session
        self._ack_window = ack_window
        self._sink = sink
        #: By key: of the nodes that a process has in a line one waits.
        self._nodes: dict[str, Node] = {}

    def wait(
        self, node: Node, before: Sequence[str], rivals: Sequence[str], deadline: Deadline
    ) -> Exchanges[Queued | None]:
        """Wait for those *before*, of whom *rivals* keep *node* out; None if the line has moved.

        Raises `BackendUnavailable` if one of them is nobody's: it would be waited for in vain.
        """
        node.called, node.taking = False, None
        if node.clear is None:
            # A contender that came behind others has to say so when it has the lock.
            node.clear, node.earlier = silent(node.earlier, before), ()
        heads = before[: entered(before)]
        pause = yield from send_away(self._session, node, heads, self._ack_window, deadline)
        if pause == 0.0:
            return None
        watch = watch_for(node, before, rivals)
        if node.watched != self._session.connections or node.watch is None or node.watch.path != watch.path:
            node.watch, node.watched = watch, self._session.connections
            self._nodes[node.request.key] = node
            if not (yield from self._watch(node, watch, deadline)):
                return None
        elif (yield from self.lets_in(node, rivals, deadline)):
            # It asks before it is told.
            return None
        else:
            (head,) = yield from self._session.asking([look_at(node, before[0])], deadline)
            refuse_foreign(self._session.address, node, before[0], head)
        if pause is None:
            pause = POLL * (0.75 + 0.25 * random.random())  # noqa: S311 - spreads clients, hides nothing
        return Queued(pause)

    def lets_in(self, node: Node, rivals: Sequence[str], deadline: Deadline) -> Exchanges[bool]:
        """Whether *rivals*, who stand before the reader *node*, are one writer that reads by now."""
        if len(rivals) != 1 or not is_reader(node.name):
            return False
        asked = [GetData(f"{node.parent}/{rivals[0]}", None)]
        (answer,) = yield from self._session.asking(asked, deadline)
        if isinstance(answer, KazooException) or not says_that_it_reads(answer):
            return False
        node.opened = rivals[0]
        return True

    def _watch(self, node: Node, watch: Watch, deadline: Deadline) -> Exchanges[bool]:
        """Be told of what lets *node* in. False if it has happened."""
        if not watch.last:
            # We can't be first yet, so that nobody has to wait for what it says.
            self._ask(node, watch)
            return True
        (answer,) = yield from self._session.exchanging([self._request(node, watch)], deadline)
        if isinstance(answer, NoNodeError):
            node.watched, node.called = 0, True
            return False
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        if watch.path != node.parent:
            refuse_foreign(self._session.address, node, watch.path.rpartition("/")[2], answer[1])
        if watch.opens(answer):
            self._note(node, watch)
            return False
        return True

    def _request(self, node: Node, watch: Watch) -> Any:
        return watch.request(watch.path, Watcher(self.moved, node.request.key, self.changed))

    def forget(self, node: Node) -> None:
        """It waits no longer."""
        node.called, node.taking = False, None
        # What is given up late may not take its successor along.
        if self._nodes.get(node.request.key) is node:
            self._nodes.pop(node.request.key, None)

    # -- kazoo's thread --------------------------------------------------------------------------

    def moved(self, key: str, path: str) -> None:
        """A node that we watch is gone."""
        self._let_in(key, self._watching(key, path))

    def changed(self, key: str, path: str) -> None:
        """What we watch has changed. Only a new watch tells what it is like now."""
        if (node := self._watching(key, path)) is not None and node.watch is not None:
            self._ask(node, node.watch)

    def _watching(self, key: str, path: str) -> Node | None:
        node = self._nodes.get(key)
        if node is None or node.watch is None or node.watch.path != path:
            return None
        return node if node.watched == self._session.connections else None

    def _ask(self, node: Node, watch: Watch) -> None:
        """Set *watch*, and don't wait for what it says."""
        self._session.wire.submit([self._request(node, watch)], partial(self._answered, node, watch))

    def _answered(self, node: Node, watch: Watch, answer: Answer) -> None:
        """Whether there is a watch. Where the connection broke everybody asks again on the next one."""
        if isinstance(answer.error, NoNodeError) or (answer.error is None and watch.opens(answer.get())):
            # It may have left meanwhile, and its successor wait in the same place for something else.
            current = self._nodes.get(node.request.key) is node and node.watch is watch
            self._let_in(node.request.key, node if current else None)

    def _let_in(self, key: str, node: Node | None) -> None:
        """What *node* watches has happened."""
        if node is None or (watch := node.watch) is None:
            self._sink.notified(key)
        elif watch.then is not None:
            node.watch = watch.then
            self._ask(node, watch.then)
        else:
            if watch.takes:
                self._note(node, watch)
            if node.called and node.request.prompt and node.request.mode != READ:
                self._take(node, watch)
            else:
                self._sink.notified(key)

    def _note(self, node: Node, watch: Watch) -> None:
        """*watch* has let *node* in."""
        node.called = True
        if is_reader(node.name):
            # Most likely it is gone. It reads if it is still there.
            node.opened = watch.path.rpartition("/")[2]

    def _take(self, node: Node, watch: Watch) -> None:
        """Take the lock for a waiter that is yet to wake up, and wake it when that is done."""
        wire, key, sent = self._session.wire, node.request.key, clock.now()
        answers = wire.submit(to_take(node, wire), lambda _: self._sink.notified(key))
        node.taking = Taking(sent, answers)
