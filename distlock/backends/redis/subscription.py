"""The subscription of a process, on which it gets pushes when other processes hand locks off to it.

If threads wait for locks, one of them reads the subscription, and wakes the others. If none waits, the
subscription's own thread reads. So a push wakes one thread, not two: see
https://en.wikipedia.org/wiki/Leader%E2%80%93follower_pattern
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from distlock import clock
from distlock.backends.protocols import Sleep
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.scripts import command
from distlock.signal_safety import Flag, backend_thread

logger = logging.getLogger(__name__)

#: Seconds for which the subscription's thread leaves the reading to waiters, before it checks whether one
#: reads.
NAP = 0.2
#: Seconds of silence after which the server gets a ``PING``.
QUIET = 5.0
#: The exceptions with which a connection can fail.
FAILURES = (OSError, ReplyError, ValueError, RuntimeError)
#: Seconds between attempts to subscribe: the first pause, which doubles each time, and the longest.
_BACKOFF = (0.05, 2.0)


class SubscriptionReader:
    """Leader/follower reader of one subscription. *dispatch* reads one message and delivers it.

    The leader is the thread that has `_leadership`, and reads for all. At first it is the subscription's
    thread, which leaves the reading to a waiter if one waits.
    """

    def __init__(self, dispatch: Callable[[RedisConnection], None]) -> None:
        self._dispatch = dispatch
        self._leadership = threading.Lock()
        self._leadership.acquire()
        #: The subscription's thread sleeps on this lock while waiters read.
        self._called = threading.Lock()
        self._called.acquire()
        self._sleepers: set[Sleep] = set()
        #: Whether a waiter has read during the latest nap.
        self._was_led = False
        #: The latest deadline of the waiters that may have read.
        self._led_until = 0.0
        #: Until when callers wait that can't read: tasks, and callers that watch latches.
        self._tasks_until = 0.0
        self.connection: RedisConnection | None = None
        #: The text of the failure that a reading waiter met. The exception itself would keep its frames
        #: alive.
        self.failure = ""

    def wait(self, parker: Sleep, timeout: float) -> None:
        """Sleep at *parker* until it is woken, for at most *timeout* seconds. Read if nobody else reads."""
        ends, leadership = clock.now() + timeout, self._leadership
        try:
            # Added before the check, so that a leader that stops reading now wakes a thread for us.
            self._sleepers.add(parker)
            if not leadership.locked():
                # By this time `delegate` finds that an interrupt has left the lock locked. So set it before
                # the lock is taken, but not if another thread has taken the lock.
                self._led_until = max(self._led_until, ends)
                if leadership.acquire(blocking=False):
                    try:
                        parker.prepare_sleep()
                        self._read_for(parker, ends)
                    finally:
                        leadership.release()
                        if len(self._sleepers) > 1 or clock.now() < self._tasks_until:
                            self.wake_thread()
                    if parker.use_wakeup():
                        return
            parker.wait(max(0.0, ends - clock.now()))
        finally:
            self._sleepers.discard(parker)

    def _read_for(self, parker: Sleep, ends: float) -> None:
        self._was_led = True
        connection = self.connection
        if connection is None:
            return
        try:
            while not parker.has_wakeup() and (now := clock.now()) < ends:
                if connection.has_data(min(ends, now + QUIET)):
                    self._dispatch(connection)
                elif now + QUIET <= ends:
                    # Silence: the subscription's thread has to send a PING.
                    self.wake_thread()
                    return
        except BaseException as error:
            self.failure = str(error)
            # An interrupt may have come in the middle of a message.
            connection.disconnect()
            self.wake_thread()
            if not isinstance(error, FAILURES):
                raise

    def stay_until(self, then: float) -> None:
        """Have the subscription's thread read until *then*, because a caller that can't read waits."""
        naps = clock.now() >= self._tasks_until
        self._tasks_until = max(self._tasks_until, then)
        if naps:
            self.wake_thread()

    def wake_thread(self) -> None:
        """Wake the subscription's thread, which reads, or finds the failure."""
        try:
            self._called.release()
        except RuntimeError:
            pass  # The thread has been woken already.

    def delegate(self, closing: Flag) -> None:
        """Leave the reading to waiters if they can read. Return when the thread has to read again itself."""
        woken = tuple(self._sleepers)
        # Leave the reading only if there are waiters and all are awake: the next one that sleeps reads. A
        # waiter that sleeps already would not notice that no thread reads, and a task can't read.
        if not woken or not all(parker.has_wakeup() for parker in woken) or clock.now() < self._tasks_until:
            return
        self._leadership.release()
        while not closing.is_set:
            called = self._called.acquire(timeout=NAP)
            if clock.now() >= self._led_until + QUIET and self._leadership.locked():
                # An interrupt has left `_leadership` locked, although no thread reads.
                self._leadership = threading.Lock()
            if (called or not self._was_led) and self._leadership.acquire(blocking=False):
                return
            self._was_led = False


class SubscriptionObserver(Protocol):
    """The methods of `distlock.backends.base.Sink` that a subscription calls."""

    def missed_notifications(self) -> None: ...
    def reconnected(self) -> None: ...


@dataclass(eq=False)
class Subscription:
    """A subscription, and its thread, which subscribes again when the connection breaks, until `close`.

    While `subscribed` is False, no message arrives. When the connection breaks, and when the thread has
    subscribed again, it calls `SubscriptionObserver.missed_notifications`: messages may have been lost.

    Args:
        address: The server, for errors and the log.
        connect: Makes a connection, which is not connected yet.
        io_timeout: The longest time of an exchange, in seconds.
        channels: The channels to subscribe to.
        receive: Called with the payload of each message, in the thread that reads.
        observer: Notified when the connection breaks or is replaced.
    """

    #: The log line for a failure of the subscription.
    deaf: ClassVar = "No hand-offs are heard from the Redis server at %s, so waiters poll: %s"
    #: The thread's name.
    name: ClassVar = "distlock-redis-listener"

    _address: RedisAddress
    _connect: Callable[[], RedisConnection]
    _io_timeout: float
    _channels: Sequence[str]
    _receive: Callable[[bytes], None]
    _observer: SubscriptionObserver
    #: How many attempts fail before the log says so.
    attempts: int = 1
    subscribed: bool = False
    _has_broken: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _closing: Flag = field(default_factory=Flag)
    #: Whether the first attempt to subscribe has succeeded or failed. `close`, and a caller that won't wait
    #: for the first attempt, set it, too.
    tried: Flag = field(default_factory=Flag)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._reader = SubscriptionReader(self._dispatch)
        self.wait, self.stay_until = self._reader.wait, self._reader.stay_until

    def ensure_started(self, deadline: float) -> None:
        """Start the thread that subscribes. Wait until *deadline* for its first attempt, successful or not.

        Raises `BackendUnavailable` if no thread can be started.
        """
        with self._mutex:
            if not self._closing.is_set and self._thread is None:
                thread = backend_thread(self.name, self._run)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise unavailable(self._address, error) from error
                self._thread = thread
        self.tried.wait(max(0.0, deadline - clock.now()))

    def close(self, timeout: float) -> None:
        """End the thread and its connection. Wait for their end for at most *timeout* seconds."""
        with self._mutex:
            self._closing.set()
            self.tried.set()
            if self._reader.connection is not None:
                self._reader.connection.disconnect()
            self._reader.wake_thread()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def dismiss(self) -> None:
        """End the thread soon. Takes no mutex, because a finaliser may run while a thread has it."""
        self._closing.set()
        if (connection := self._reader.connection) is not None:
            connection.shut_down()
        self._reader.wake_thread()

    def _run(self) -> None:
        backoff = _BACKOFF[0]
        logged, failed = "", 0
        while not self._closing.is_set:
            try:
                connection = self._subscribe()
                backoff, logged, failed = _BACKOFF[0], "", 0
                self._set_subscribed(True)
                self._listen(connection)
            except FAILURES as error:
                # If a waiter met the failure, this thread finds only that the connection was closed.
                text = self._address.redact(self._reader.failure or str(error))
                failed += 1
                if failed >= self.attempts and text != logged and not self._closing.is_set:
                    logged = text
                    logger.warning(self.deaf, self._address.shown, text)
            except Exception:
                # A connection that another thread closes can fail in any way, which must not end this thread.
                if not self._closing.is_set:
                    logger.exception("Listening to the Redis server at %s failed", self._address.shown)
            finally:
                self._drop()
            self._set_subscribed(False)
            self.tried.set()
            self._closing.wait(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads clients, hides nothing
            backoff = min(2 * backoff, _BACKOFF[1])

    def _subscribe(self) -> RedisConnection:
        connection = self._connect()
        with self._mutex:
            if self._closing.is_set:
                raise OSError("closed")
            self._reader.connection, self._reader.failure = connection, ""
        deadline = self._deadline()
        connection.connect(deadline)
        (reply,) = connection.ask([command("SUBSCRIBE", *self._channels)], deadline)
        if isinstance(reply, ReplyError):
            raise reply
        return connection

    def _listen(self, connection: RedisConnection) -> None:
        pinged = False
        while not self._closing.is_set:
            if not connection.has_data(clock.now() + QUIET):
                if pinged:
                    raise OSError(f"it has not answered for {QUIET:g} s")
                # A connection may be dead without either end knowing.
                connection.send(command("PING"), self._deadline())
                pinged = True
                continue
            pinged = False
            self._dispatch(connection)
            self._reader.delegate(self._closing)

    def _dispatch(self, connection: RedisConnection) -> None:
        reply = connection.read(self._deadline())
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
            self._receive(reply[2])

    def _deadline(self) -> float:
        return clock.now() + self._io_timeout

    def _set_subscribed(self, subscribed: bool) -> None:
        """Note whether the subscription stands, and report a change.

        Call `missed_notifications` if callers no longer wait for the first attempt (`tried`), and
        `reconnected` if the subscription replaces a broken one.
        """
        if self.subscribed is not subscribed:
            self.subscribed = subscribed
            if not subscribed:
                self._has_broken = True
            elif self._has_broken:
                self._observer.reconnected()
            # Callers wait for the first attempt in `ensure_started`, so they have missed nothing.
            if self.tried.is_set and not self._closing.is_set:
                self._observer.missed_notifications()
            self.tried.set()

    def _drop(self) -> None:
        with self._mutex:
            connection, self._reader.connection = self._reader.connection, None
        if connection is not None:
            connection.disconnect()
