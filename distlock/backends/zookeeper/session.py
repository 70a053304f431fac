"""One session with the ensemble: all holds and waiters of one ttl live as long as it does."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KazooState, KeeperState

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import LOSSES, Broken, no_session, no_thread, unavailable
from distlock.backends.zookeeper.wire import Wire
from distlock.errors import ConfigurationError
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
        """Send *requests* in one go and return their answers; what the server refused is a `KazooException`.

        Raises `Broken` where the connection broke, and `BackendUnavailable` where there was no answer until
        *deadline*. Then nothing is known of what they did.
        """
        self.connect(deadline)
        began = clock.now()
        results = [self.wire.submit(request) for request in requests]
        answers: list[Any] = []
        try:
            # They come in order. Waiting for the last first is being woken once.
            if not results[-1].wait(max(0.0, deadline - clock.now())):
                deadline = deadline.extended()
                results[-1].wait(max(0.0, deadline - clock.now()))
            for result in results:
                try:
                    answers.append(result.get(timeout=max(0.0, deadline - clock.now())))
                except LOSSES:
                    raise
                except KazooException as error:
                    answers.append(error)
        except (*LOSSES, KazooTimeoutError) as error:
            if isinstance(error, KazooTimeoutError):
                error = KazooTimeoutError(f"no answer within {clock.now() - began:.2g} s")
            raise unavailable(self.address, error) from error
        return answers

    def ask(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`exchange` for what may be repeated: when the connection breaks it goes on with the next one."""
        while True:
            try:
                return self.exchange(requests, deadline)
            except Broken:
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise

    def send(self, request: Any) -> None:
        """Send what nobody waits for, if there is a connection."""
        if self.connected:
            self.wire.submit(request)

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
        """Wait until there is a connection. Raises `BackendUnavailable` when there is none at *deadline*."""
        if not self.wire.connected:
            began = clock.now()
            with self._mutex:
                if not self._started and not self._closing:
                    self._begin()
            if self.wire.client_state == KeeperState.AUTH_FAILED:
                raise unavailable(self.address, AuthFailedError("the server refused the login"))
            if not self.wire.wait(max(0.0, deadline - clock.now())) and not self.wire.wait(
                max(0.0, deadline.extended() - clock.now())
            ):
                raise no_session(self.address, clock.now() - began, self.wire.memo.last)
        # Milliseconds are cut off on the way.
        if (granted := self.wire.session_timeout) < _SLACK * self.ttl - 0.002:
            raise ConfigurationError(
                f"ZooKeeper at {self.address.shown} grants sessions of at most {granted:g} s, which is less "
                f"than {_SLACK:g} times ttl={self.ttl:g}. Take a smaller ttl, or raise maxSessionTimeout on "
                "the server."
            )

    def _begin(self) -> None:
        self._away_since = clock.now()
        try:
            self.wire.begin()
        except RuntimeError as error:
            raise no_thread(self.address, error) from error
        except OSError as error:
            raise unavailable(self.address, error) from error
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
            self._sink.doubt()

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
