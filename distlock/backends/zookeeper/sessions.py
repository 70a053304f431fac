"""The sessions of a process, one for each ttl, and the thread that looks after each session."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from kazoo.protocol.serialization import Delete

from distlock.backends.base import LockRequest, Sink
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.contenders import Contenders
from distlock.backends.zookeeper.nodes import FOLDER
from distlock.backends.zookeeper.sans_io import Deadline
from distlock.backends.zookeeper.session import ZooKeeperSession
from distlock.errors import ConfigurationError, LockError
from distlock.signal_safety import Flag, backend_thread

logger = logging.getLogger(__name__)

#: Sessions cost threads, and more different ttls than this are most likely a mistake.
_MOST_SESSIONS = 8
#: Seconds between two rounds of a janitor: a tenth of the ttl, but within these bounds.
_PERIOD = (0.1, 5.0)


class Janitor:
    """The thread of one session: it keeps the session alive, and deletes leftovers and unused nodes.

    kazoo's heartbeats come too rarely for that, because the leader may miss the latest one: see `_SLACK` in
    `distlock.backends.zookeeper.session`.
    """

    def __init__(self, contenders: Contenders) -> None:
        self.contenders = contenders
        self._period = min(max(_PERIOD[0], contenders.session.ttl / 10), _PERIOD[1])
        self._closing = Flag()
        self._left_alone = False
        self._ended = False
        self._thread = backend_thread("distlock-zookeeper-janitor", self._run)

    def start(self) -> None:
        try:
            self._thread.start()
        except BaseException as error:
            # After an interrupt the thread may run: have it end. `Thread.start` turns some interrupts into a
            # RuntimeError.
            self._closing.set()
            if isinstance(error, RuntimeError):
                raise self.contenders.session.no_thread(error) from error
            raise

    def close(self) -> None:
        """Delete all nodes and close the session, within a bounded time.

        The thread does that, because signal handlers run in the main thread and may raise there.
        """
        self._left_alone = True
        self.stop()
        if not self._ended:
            # The thread ended before, without closing the session.
            self._end()

    def stop(self) -> None:
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave_alone(self) -> None:
        """Have the thread close the session in its next round.

        Takes no mutex, because the garbage collector may call this anywhere.
        """
        self._left_alone = True

    def _run(self) -> None:
        while not self._closing.wait(self._period) and not self._left_alone:
            try:
                self._round()
            except LockError as error:
                logger.debug("Leftover nodes are deleted later: %s", error)
            except Exception:
                logger.exception(
                    "Looking after unused nodes failed with an unexpected error. It is tried again."
                )
        if self._left_alone:
            self._end()

    def _round(self) -> None:
        contenders, session = self.contenders, self.contenders.session
        session.touch()
        contenders.give_up()
        if session.connected:
            contenders.leftovers.sweep(Deadline(session.io_timeout))
            contenders.tidy()
            contenders.status.lapse()

    def _end(self) -> None:
        """Delete all nodes, and close the session."""
        contenders = self.contenders
        for node in list(contenders.nodes.values()):
            # Forget the node before its deletion, which would otherwise be taken for a lost hold.
            contenders.nodes.pop(node.request.token, None)
            contenders.session.send(Delete(node.path, -1))
            contenders.lock_nodes.put(node.parent)
        for path in contenders.lock_nodes.clear():
            contenders.session.send(Delete(path, -1))
        contenders.session.close()
        self._ended = True


class ZooKeeperSessions(dict[float, Janitor]):
    """The sessions of this process: the janitor of each session, by ttl. Thread-safe."""

    def __init__(self, address: ZooKeeperAddress, io_timeout: float, ack_window: float) -> None:
        self._address = address
        self._io_timeout = io_timeout
        self._ack_window = ack_window
        self._mutex = threading.Lock()
        #: Whether all sessions have been closed since the last one was opened.
        self.closed = False

    def of(self, ttl: float, sink: Sink) -> Contenders:
        """Return the contenders for *ttl*, with a new session if there is none or the session is dead.

        *sink*: for a new session.

        Raises:
            ConfigurationError: Too many ttls are in use.
            BackendUnavailable: No thread can be started.
        """
        found = self.get(ttl)
        if found is not None and not found.contenders.session.dead:
            return found.contenders
        with self._mutex:
            found = self.get(ttl)
            if found is not None and not found.contenders.session.dead:
                return found.contenders
            if found is not None:
                del self[ttl]
                # The janitor closes the session, so that no caller has to wait for that.
                found.contenders.session.replaced = True
                found.leave_alone()
            if len(self) >= _MOST_SESSIONS:
                raise ConfigurationError(
                    f"More than {_MOST_SESSIONS} different ttls are in use. ZooKeeper needs a session for "
                    "each: use fewer."
                )
            is_reconnect = found is not None
            session = ZooKeeperSession(self._address, ttl, self._io_timeout, sink, is_reconnect)
            base = f"{self._address.chroot}/{FOLDER}"
            janitor = Janitor(Contenders(session, base, self._ack_window, sink))
            janitor.start()
            self[ttl] = janitor
            self.closed = False
            return janitor.contenders

    def ready(self, request: LockRequest | None) -> Contenders | None:
        """Return the contenders for *request*, or any contenders if *request* is None.

        Return None if a call would have to wait: for a connection, or for a release in another session.
        """
        for one in self.contenders():
            if one.session.connected and not one.session.dead:
                if request is None:
                    return one
                if one.session.ttl == request.ttl:
                    others = (other for other in self.contenders() if other is not one)
                    return None if any(other.releases.awaits(request.key) for other in others) else one
        return None

    def contenders(self) -> list[Contenders]:
        """Return the contenders of all sessions."""
        return [janitor.contenders for janitor in list(self.values())]

    def take_out(self) -> list[Janitor]:
        """Remove all sessions. Return their janitors, which the caller closes."""
        with self._mutex:
            self.closed = True
            janitors = list(self.values())
            # If an interrupt stops the caller, the janitors end by themselves.
            for janitor in janitors:
                janitor.leave_alone()
            self.clear()
        return janitors

    def after_fork(self) -> None:
        """Forget the parent's sessions, in a forked child."""
        for contenders in self.contenders():
            contenders.session.client.forget()
        self._mutex = threading.Lock()
        self.clear()

    def leave_alone(self) -> None:
        """Have the janitors close all sessions, without waiting for that."""
        while self:
            with suppress(KeyError):
                self.popitem()[1].leave_alone()
