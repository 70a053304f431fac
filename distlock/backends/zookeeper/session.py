"""One session with the ensemble: all holds and waiters of one ttl live as long as it does."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KazooState, KeeperState

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Await, Block, Exchanges, run
from distlock.backends.zookeeper.failures import LOSSES, Broken, no_session, no_thread, unavailable
from distlock.backends.zookeeper.wire import Wire
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.reentrance import call

logger = logging.getLogger(__name__)

#: A session lives this much longer than a hold without renewal. The leader ends it, and a follower tells it
#: only every half tick (1 s by default) whom it has heard of. One that dies before that takes a renewal
#: along: then the leader counts from the `touch` that it was told of before, a tenth of the ttl earlier.
_SLACK = 1.3
#: kazoo's heartbeats are not fine enough for shorter sessions, seconds.
_SHORTEST = 2.0


class Session:
    """Connects when it is used first. Threads share it.

    *sink* is told, in kazoo's thread, when a connection comes back or the session ends. *again*: it takes the
    place of one that was given up.
    """

    def __init__(
        self, address: Address, ttl: float, io_timeout: float, sink: Sink, again: bool = False
    ) -> None:
        self.address = address
        self.ttl = ttl
        self.io_timeout = io_timeout
        self._sink = sink
        self._again = again
        #: Another one has taken its place. It may come back before it is closed.
        self.replaced = False
        self.wire = Wire(address, max(_SHORTEST, _SLACK * ttl), io_timeout)
        self.wire.add_listener(self._heard)
        #: How often it has connected. Watches end with a connection.
        self.connections = 0
        self._mutex = threading.Lock()
        self._started = False
        self._closing = False
        self._away_since = math.inf

    @property
    def id(self) -> int | None:
        """What the server calls it; None when it has ended and there is no new one yet."""
        return self.wire.session_id

    @property
    def connected(self) -> bool:
        return bool(self.wire.connected)

    @property
    def dead(self) -> bool:
        """Nothing comes of it any more: it was refused, or away for longer than anything of it can live.

        A server that lost its data does not let clients in that have seen more than it knows. It tells them
        nothing more.
        """
        if self.wire.client_state == KeeperState.AUTH_FAILED:
            return True
        return clock.now() - self._away_since > 2 * max(self.wire.session_timeout, self.ttl)

    def exchange(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`exchanging`, in the caller's thread."""
        return run(self.exchanging(requests, deadline))

    def ask(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`asking`, in the caller's thread."""
        return run(self.asking(requests, deadline))

    def exchanging(self, requests: Sequence[Any], deadline: Deadline) -> Exchanges[list[Any]]:
        """Send *requests* in one go and return their answers; what the server refused is a `KazooException`.

        Raises `Broken` where the connection broke, and `BackendUnavailable` where there was no answer until
        *deadline*. Then nothing is known of what they did.
        """
        yield from self.connecting(deadline)
        began = clock.now()
        if deadline.hard and began >= deadline:
            raise unavailable(self.address, KazooTimeoutError("there was no time left to ask"))
        answers = self.wire.submit(requests)
        said: list[Any] = []
        try:
            # They come in order.
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
                except KazooException as error:
                    said.append(error)
        except (*LOSSES, KazooTimeoutError) as error:
            raise unavailable(self.address, error) from error
        return said

    def asking(self, requests: Sequence[Any], deadline: Deadline) -> Exchanges[list[Any]]:
        """`exchanging` for what may be repeated: when the connection breaks it goes on with the next one."""
        while True:
            try:
                return (yield from self.exchanging(requests, deadline))
            except Broken:
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise

    def send(self, request: Any) -> None:
        """Send what nobody waits for, if there is a connection."""
        if self.connected:
            self.wire.submit([request])

    def touch(self) -> None:
        """Be heard of: the session is counted from the last time that its leader was told of us."""
        self.send(Exists("/", None))

    def close(self) -> None:
        """End the session, and with it all its nodes at once. Bounded in time."""
        with self._mutex:
            self._closing = True
            if not self._started:
                return
        stopper = threading.Thread(
            target=call, args=(self._stop,), name="distlock-zookeeper-close", daemon=True
        )
        try:
            stopper.start()
        except RuntimeError:
            # Without a thread it can't say goodbye and be bounded in time: the server finds out.
            self.wire.cut()
            self._stop()
            return
        stopper.join(self.io_timeout)
        if stopper.is_alive():
            self.wire.cut()
            stopper.join(self.io_timeout)
        if stopper.is_alive():
            logger.warning("The session with ZooKeeper at %s is still being closed.", self.address.shown)

    def _stop(self) -> None:
        try:
            self.wire.stop()
            self.wire.close()
        except Exception:
            logger.exception("The session with ZooKeeper at %s was not closed well", self.address.shown)

    def connect(self, deadline: Deadline) -> None:
        """`connecting`, in the caller's thread."""
        run(self.connecting(deadline))

    def connecting(self, deadline: Deadline) -> Exchanges[None]:
        """Wait until there is a connection. Raises `BackendUnavailable` when there is none at *deadline*."""
        if not self.connected:
            if self._closing:
                raise BackendUnavailable(f"The session with ZooKeeper at {self.address.shown} is closed.")
            yield Block(partial(self._wait, deadline))
        # Milliseconds are cut off on the way.
        if (granted := self.wire.session_timeout) < _SLACK * self.ttl - 0.002:
            raise ConfigurationError(
                f"ZooKeeper at {self.address.shown} grants sessions of at most {granted:g} s, which is less "
                f"than {_SLACK:g} times ttl={self.ttl:g}. Take a smaller ttl, or raise maxSessionTimeout on "
                "the server."
            )

    def _wait(self, deadline: Deadline) -> None:
        began = clock.now()
        if not self._started and not self._closing:
            self._begin()
        if self.wire.client_state == KeeperState.AUTH_FAILED:
            raise unavailable(self.address, AuthFailedError("the server refused the login"))
        if not self.wire.wait(max(0.0, deadline - clock.now())) and not self.wire.wait(
            max(0.0, deadline.extended() - clock.now())
        ):
            raise no_session(self.address, clock.now() - began, self.wire.memo.last)

    def _begin(self) -> None:
        """`_open`, in a thread of its own: signal handlers run in the main thread, and raise in there.

        An interrupt in the middle would leave a connection that nobody knows of.
        """
        troubles: list[BackendUnavailable] = []
        opener = threading.Thread(
            target=call, args=(self._open, troubles), name="distlock-zookeeper-open", daemon=True
        )
        try:
            opener.start()
        except RuntimeError as error:
            raise no_thread(self.address, error) from error
        opener.join()
        for trouble in troubles:
            raise trouble

    def _open(self, troubles: list[BackendUnavailable]) -> None:
        with self._mutex:
            # Another caller's thread may have been first, and so may `close`: ours was interrupted.
            if self._started or self._closing:
                return
            self._away_since = clock.now()
            try:
                self.wire.begin()
            except RuntimeError as error:
                troubles.append(no_thread(self.address, error))
            except OSError as error:
                troubles.append(unavailable(self.address, error))
            else:
                self._started = True

    def _heard(self, state: str) -> None:
        """kazoo's connection changed. Runs in its thread."""
        if self._closing:
            return
        if state == KazooState.CONNECTED:
            self._away_since = math.inf
            self.connections += 1
            if self._again and not self.replaced:
                self._sink.reconnected()
            self._again = True
            if self.connections == 1:
                self._compare()
                return
        elif self._away_since == math.inf:
            self._away_since = clock.now()
        if state != KazooState.SUSPENDED:
            # While it is suspended there is nothing to ask, and the keeper's clock runs anyway.
            self._sink.missed_notifications()

    def _compare(self) -> None:
        granted, wanted = self.wire.session_timeout, max(_SHORTEST, _SLACK * self.ttl)
        if granted > 1.5 * wanted:
            logger.warning(
                "ZooKeeper at %s grants sessions of %g s at least: a process that crashes keeps its locks "
                "that long, not for ttl=%g. Lower minSessionTimeout or tickTime on the server.",
                self.address.shown,
                granted,
                self.ttl,
            )
