"""One session with the ensemble. Each ttl has its own, and its holds and queue entries end with it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import AuthFailedError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Create2, Exists, GetChildren
from kazoo.protocol.states import KazooState, KeeperState

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.client import ZooKeeperClient
from distlock.backends.zookeeper.failures import LOSSES, Broken, no_session, unavailable
from distlock.backends.zookeeper.sans_io import Await, Block, Deadline, Exchanges, run
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.signal_safety import backend_thread, no_thread

logger = logging.getLogger(__name__)

#: The session's timeout as a multiple of the ttl. The leader, which ends sessions, may count from a `touch`
#: that is older than the latest renewal: followers report only every half tick (1 s by default) which clients
#: they heard from, and a follower may die before its report.
_SLACK = 1.3
#: The shortest session, seconds: kazoo's heartbeats are too far apart for shorter ones.
_SHORTEST = 2.0


class ZooKeeperSession:
    """A session that connects when it is first used. Thread-safe.

    *sink* is notified, in kazoo's thread, when a connection comes back or the session ends. *is_reconnect*:
    whether this session replaces one that was given up.
    """

    def __init__(
        self, address: ZooKeeperAddress, ttl: float, io_timeout: float, sink: Sink, is_reconnect: bool = False
    ) -> None:
        self.address = address
        self.ttl = ttl
        self.io_timeout = io_timeout
        self._sink = sink
        self._is_reconnect = is_reconnect
        #: Whether another session has replaced this one, which may still come back before it is closed.
        self.replaced = False
        self.client = ZooKeeperClient(address, max(_SHORTEST, _SLACK * ttl), io_timeout)
        self.client.add_listener(self._changed)
        #: The number of connections so far. A watch ends with its connection.
        self.connections = 0
        self._mutex = threading.Lock()
        self._started = False
        self._closing = False
        self._away_since = math.inf

    @property
    def id(self) -> int | None:
        """The server's id of the session; None if it has ended and no new one exists yet."""
        return self.client.session_id

    @property
    def connected(self) -> bool:
        return bool(self.client.connected)

    @property
    def dead(self) -> bool:
        """Whether the session can be given up: its login was refused, or the server must have ended it.

        A server that lost its data rejects clients that have seen newer data, and does not say why: to kazoo
        it looks like a server that is away.
        """
        if self.client.client_state == KeeperState.AUTH_FAILED:
            return True
        return clock.now() - self._away_since > 2 * max(self.client.session_timeout, self.ttl)

    def ask(self, requests: Sequence[Any], deadline: Deadline, *expected: type[KazooException]) -> list[Any]:
        """Run `asking` in the caller's thread."""
        return run(self.asking(requests, deadline, *expected))

    def exchanging(
        self, requests: Sequence[Any], deadline: Deadline, *expected: type[KazooException]
    ) -> Exchanges[list[Any]]:
        """Send *requests* in one packet and return the answers, among them refusals of the *expected* types.

        Raises `Broken` if the connection broke, and `BackendUnavailable` if there was no answer until
        *deadline*: in both cases the outcome is unknown. Raises `BackendUnavailable` for other refusals.
        """
        yield from self.connecting(deadline)
        began = clock.now()
        if deadline.hard and began >= deadline:
            raise unavailable(self.address, KazooTimeoutError("there was no time left to ask"))
        answers = self.client.submit(requests)
        said: list[Any] = []
        try:
            # Replies come in order, so all have come when the last one has.
            last = answers[-1]
            if not (yield Await(last, deadline - clock.now())):
                deadline = deadline.extended()
                if not (yield Await(last, deadline - clock.now())):
                    raise KazooTimeoutError(f"no answer within {clock.now() - began:.2g} s")
            for answer in answers:
                try:
                    said.append(answer.get())
                except LOSSES:
                    raise
                except expected as error:
                    said.append(error)
        except (KazooException, KazooTimeoutError) as error:
            raise unavailable(self.address, error) from error
        return said

    def asking(
        self, requests: Sequence[Any], deadline: Deadline, *expected: type[KazooException]
    ) -> Exchanges[list[Any]]:
        """As `exchanging`, but repeat *requests* on the next connection if this one breaks."""
        while True:
            try:
                return (yield from self.exchanging(requests, deadline, *expected))
            except Broken:
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise

    def checked(self, answer: Any) -> Any:
        """Return *answer*. Raises `BackendUnavailable` if it is a refusal."""
        if isinstance(answer, KazooException):
            raise unavailable(self.address, answer)
        return answer

    def send(self, request: Any) -> None:
        """Send *request* without waiting for the reply, if there is a connection."""
        if self.connected:
            self.client.submit([request])

    def touch(self) -> None:
        """Keep the session alive: the leader counts from the last time that it heard of us."""
        self.send(Exists("/", None))

    def close(self) -> None:
        """End the session, and all its nodes, within a bounded time."""
        with self._mutex:
            self._closing = True
            if not self._started:
                return
        stopper = backend_thread("distlock-zookeeper-close", self._stop)
        try:
            stopper.start()
        except RuntimeError:
            # Without a thread, the time of a proper close is not bounded, so the connection is cut. The
            # server ends the session after its timeout.
            self.client.cut()
            self._stop()
            return
        stopper.join(self.io_timeout)
        if stopper.is_alive():
            self.client.cut()
            stopper.join(self.io_timeout)
        if stopper.is_alive():
            logger.warning("The session with ZooKeeper at %s is still being closed.", self.address.shown)

    def _stop(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception:
            logger.exception("The session with ZooKeeper at %s was not closed well", self.address.shown)

    def connect(self, deadline: Deadline) -> None:
        """Run `connecting` in the caller's thread."""
        run(self.connecting(deadline))

    def connecting(self, deadline: Deadline) -> Exchanges[None]:
        """Wait until there is a connection, and begin to connect if nothing was asked before.

        Raises:
            BackendUnavailable: There is no connection at *deadline*, or the session was closed.
            ConfigurationError: The server grants too short a session for the ttl.
        """
        if not self.connected:
            if self._closing:
                raise BackendUnavailable(f"The session with ZooKeeper at {self.address.shown} is closed.")
            yield Block(partial(self._wait, deadline))
        # The protocol rounds timeouts to milliseconds.
        if (granted := self.client.session_timeout) < _SLACK * self.ttl - 0.002:
            raise ConfigurationError(
                f"ZooKeeper at {self.address.shown} grants sessions of at most {granted:g} s, which is less "
                f"than {_SLACK:g} times ttl={self.ttl:g}. Take a smaller ttl, or raise maxSessionTimeout on "
                "the server."
            )

    def _wait(self, deadline: Deadline) -> None:
        began = clock.now()
        if not self._started and not self._closing:
            self._begin()
        if self.client.client_state == KeeperState.AUTH_FAILED:
            raise unavailable(self.address, AuthFailedError("the server refused the login"))
        if not self.client.wait(max(0.0, deadline - clock.now())) and not self.client.wait(
            max(0.0, deadline.extended() - clock.now())
        ):
            raise no_session(self.address, clock.now() - began, self.client.memo.last)

    def _begin(self) -> None:
        """Run `_open` in a thread, because a signal handler may raise in the main thread.

        An exception in the middle of `_open` would leave a connection that nobody closes.
        """
        troubles: list[BackendUnavailable] = []
        opener = backend_thread("distlock-zookeeper-open", self._open, troubles)
        try:
            opener.start()
        except RuntimeError as error:
            raise self.no_thread(error) from error
        opener.join()
        for trouble in troubles:
            raise trouble

    def _open(self, troubles: list[BackendUnavailable]) -> None:
        with self._mutex:
            # Another caller or `close` may have been first.
            if self._started or self._closing:
                return
            self._away_since = clock.now()
            try:
                self.client.begin()
            except RuntimeError as error:
                troubles.append(self.no_thread(error))
            except OSError as error:
                troubles.append(unavailable(self.address, error))
            else:
                self._started = True

    def no_thread(self, error: RuntimeError) -> BackendUnavailable:
        """Return the error for a process that can start no more threads: a session needs two."""
        return no_thread(f"ZooKeeper at {self.address.shown} can't be asked", error)

    def _changed(self, state: str) -> None:
        """Handle a change of the connection. kazoo's thread calls this."""
        if self._closing:
            return
        if state == KazooState.CONNECTED:
            self._away_since = math.inf
            self.connections += 1
            if self._is_reconnect and not self.replaced:
                self._sink.reconnected()
            self._is_reconnect = True
            if self.connections == 1:
                self._warn_of_long_timeout()
                return
        elif self._away_since == math.inf:
            self._away_since = clock.now()
        if state != KazooState.SUSPENDED:
            # While the connection is suspended, the engine could not look at anything.
            self._sink.missed_notifications()

    def _warn_of_long_timeout(self) -> None:
        granted, wanted = self.client.session_timeout, max(_SHORTEST, _SLACK * self.ttl)
        if granted > 1.5 * wanted:
            logger.warning(
                "ZooKeeper at %s grants sessions of %g s at least: a process that crashes keeps its locks "
                "that long, not for ttl=%g. Lower minSessionTimeout or tickTime on the server.",
                self.address.shown,
                granted,
                self.ttl,
            )


def make_nodes(session: ZooKeeperSession, path: str, deadline: Deadline) -> Exchanges[None]:
    """Make the missing nodes from the root down to *path*."""
    steps = path.strip("/").split("/")
    paths = ["/" + "/".join(steps[: number + 1]) for number in range(len(steps))]
    # Look first: without the right to create nodes, even an existing node is refused with NoAuth.
    stats = yield from session.asking([Exists(path, None) for path in paths], deadline)
    for path, stat in zip(paths, stats, strict=True):
        if stat is None:
            yield from session.asking([Create2(path, b"", session.client.acl, 0)], deadline, NodeExistsError)


def children(
    session: ZooKeeperSession, path: str, deadline: Deadline, barrier: str = ""
) -> Exchanges[list[str]]:
    """Return the names of the children of the node *path*; [] if it does not exist.

    *barrier*: a node to write to first, so that the answer is not stale; "": none.
    """
    requests: list[Any] = [session.client.barrier(barrier)] if barrier else []
    requests.append(GetChildren(path, None))
    *_, listed = yield from session.asking(requests, deadline, KazooException)
    names: list[str] = [] if isinstance(listed, NoNodeError) else session.checked(listed)
    return names
