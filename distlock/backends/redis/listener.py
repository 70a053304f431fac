"""The one subscription of a process: a thread that hears what other processes hand off to us."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from distlock import clock
from distlock.backends.flag import Flag
from distlock.backends.redis import ears
from distlock.backends.redis.address import Address
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.ears import FAILURES, Ears
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.scripts import command
from distlock.reentrance import call

logger = logging.getLogger(__name__)

#: Time between attempts to subscribe, seconds: doubled after each, up to the second number.
_BACKOFF = (0.05, 2.0)
_DEAF = "No hand-offs are heard from the Redis server at %s, so waiters poll: %s"


class Follower(Protocol):
    """See `distlock.backends.base.Sink`."""

    def missed_notifications(self) -> None: ...
    def reconnected(self) -> None: ...


class Listener:
    """Subscribes when `start` is called first, and again whenever the connection breaks, until `close`.

    *heard*: told each message. *sink*: told what becomes of the subscription. *deaf*: what the log says
    where there is none. *name*: of the thread. *servers*: how many *make* leads to, in turn: the log is
    silent until as many attempts have failed. While `subscribed` is False there are no hints.
    `Sink.missed_notifications` is called when that changes later on, because a waiter that asked before may
    have missed its hint.
    """

    def __init__(
        self,
        address: Address,
        make: Callable[[], Connection],
        io_timeout: float,
        channels: Sequence[str],
        heard: Callable[[bytes], None],
        sink: Follower,
        deaf: str = _DEAF,
        name: str = "distlock-redis-listener",
        servers: int = 1,
    ) -> None:
        self.subscribed = False
        self._has_broken = False
        self._address = address
        self._make = make
        self._io_timeout = io_timeout
        self._channels = channels
        self._heard = heard
        self._sink = sink
        self._deaf = deaf
        self._name = name
        self._servers = servers
        self._mutex = threading.Lock()
        self._closing = Flag()
        #: Whether the first attempt to subscribe has succeeded or failed.
        self.tried = Flag()
        self._thread: threading.Thread | None = None
        self._ears = Ears(self._take_in)
        #: See `Hears`.
        self.wait, self.stay_until = self._ears.wait, self._ears.stay_until

    def start(self, deadline: float) -> None:
        """Begin to listen, and wait until *deadline* for the first attempt. Raises `BackendUnavailable`."""
        with self._mutex:
            if not self._closing.is_set() and self._thread is None:
                thread = threading.Thread(target=call, args=(self._run,), name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise unavailable(self._address, error) from error
                self._thread = thread
        self.tried.wait(max(0.0, deadline - clock.now()))

    def close(self, timeout: float) -> None:
        """End the thread and its connection."""
        with self._mutex:
            self._closing.set()
            self.tried.set()
            if self._ears.connection is not None:
                self._ears.connection.disconnect()
            self._ears.call()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def dismiss(self) -> None:
        """Have the thread end soon. It takes no mutex: a finaliser may run while a thread has it."""
        self._closing.set()
        if (connection := self._ears.connection) is not None:
            connection.shut_down()
        self._ears.call()

    def _run(self) -> None:
        backoff = _BACKOFF[0]
        told, failed = "", 0
        while not self._closing.is_set():
            try:
                connection = self._subscribe()
                backoff, told, failed = _BACKOFF[0], "", 0
                self._turn(True)
                self._listen(connection)
            except FAILURES as error:
                # Where one that waits has read, this thread finds it closed, and knows no more than that.
                text = self._address.redact(self._ears.failure or str(error))
                failed += 1
                if failed >= self._servers and text != told and not self._closing.is_set():
                    told = text
                    logger.warning(self._deaf, self._address.shown, text)
            except Exception:
                # A connection that another thread closed can fail in any way. This thread may not die of it.
                if not self._closing.is_set():
                    logger.exception("Listening to the Redis server at %s failed", self._address.shown)
            finally:
                self._drop()
            self._turn(False)
            self.tried.set()
            self._closing.wait(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads clients, hides nothing
            backoff = min(2 * backoff, _BACKOFF[1])

    def _subscribe(self) -> Connection:
        connection = self._make()
        with self._mutex:
            if self._closing.is_set():
                raise OSError("closed")
            self._ears.connection, self._ears.failure = connection, ""
        deadline = self._deadline()
        connection.connect(deadline)
        (reply,) = connection.ask([command("SUBSCRIBE", *self._channels)], deadline)
        if isinstance(reply, ReplyError):
            raise reply
        return connection

    def _listen(self, connection: Connection) -> None:
        asked = False
        while not self._closing.is_set():
            if not connection.heard(clock.now() + ears.QUIET):
                if asked:
                    raise OSError(f"it has not answered for {ears.QUIET:g} s")
                # A network can lose a connection without telling either end.
                connection.send(command("PING"), self._deadline())
                asked = True
                continue
            asked = False
            self._take_in(connection)
            self._ears.leave_it_to_others(self._closing)

    def _take_in(self, connection: Connection) -> None:
        reply = connection.read(self._deadline())
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
            self._heard(reply[2])

    def _deadline(self) -> float:
        return clock.now() + self._io_timeout

    def _turn(self, subscribed: bool) -> None:
        if self.subscribed is not subscribed:
            self.subscribed = subscribed
            if not subscribed:
                self._has_broken = True
            elif self._has_broken:
                self._sink.reconnected()
            # Whom the first subscription serves waits for it in `start`.
            if self.tried.is_set() and not self._closing.is_set():
                self._sink.missed_notifications()
            self.tried.set()

    def _drop(self) -> None:
        with self._mutex:
            connection, self._ears.connection = self._ears.connection, None
        if connection is not None:
            connection.disconnect()
