"""The queue entries of a process at the server, and the pushes that hand locks off to it.

Pushes and polls travel on different connections. So each poll has a number, and a push echoes the number of
the poll that it answers. The hold of a push was granted after that poll was sent, so its lifetime counts from
the sending of the poll.
"""

from __future__ import annotations

import itertools
import random
import weakref
from collections.abc import Sequence
from typing import Any

from distlock import clock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, Acquired, Busy, LockRequest, Queued, Sink
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.failures import unending
from distlock.backends.redis.scripts import BUSY, HELD, UNENDING, hold_key
from distlock.backends.redis.subscription import Subscription

#: The entry of a process that is not in the queue; and the prefix of an uncertain entry, which an unanswered
#: request may have changed.
_NOTHING, _PERHAPS = b"", b"?"

#: The number of digits of the largest number that a server counts to.
_DIGITS = 16

#: The server has dropped a waiter that has not polled for this many seconds: see ``hold.lua``.
_ABANDONED_AFTER = 60.0
#: Abandoned polls are pruned above this count.
_MANY = 1000

#: A process without a subscription gets no notifications, so it polls after this share of the interval.
_DEAF = 0.1
#: The shortest poll interval of such a process, seconds.
_SHORTEST = 0.02
#: The bounds of the seconds between the expiry of another process's hold and our poll. The time is random,
#: because several waiters poll then.
_AFTER = (0.005, 0.05)
#: Only the first waiters poll at the expiry of a hold: their poll interval is at most this many milliseconds.
_FRONT = 1000
#: Seconds until the next poll if the lock is free, but its queue was too long for one call to clear.
_UNDECIDED = 0.01


class Poll:
    """The latest poll that was sent for a key. It replaces the poll *before*, and takes over its entry."""

    __slots__ = ("before", "entry", "number", "request", "sent")

    def __init__(self, request: LockRequest, number: int, sent: float, before: Poll | None) -> None:
        self.request = request
        self.number = number
        self.sent = sent
        #: Our entry in the server's queue, uncertain until the poll is answered.
        self.entry: bytes = _PERHAPS + (_NOTHING if before is None else before.entry.removeprefix(_PERHAPS))
        #: The poll of another request of ours, whose place in the queue this request takes if it has to wait.
        #: If this request is granted at once, `QueueEntries.forget` makes that poll the latest again.
        self.before: Poll | None = None
        if before is not None:
            before.before, self.before = (
                None,
                before if before.request.token != request.token else before.before,
            )


class QueueEntries:
    """The polls and queue entries of one process.

    *window*: seconds for which a hold lasts that was handed off and not acknowledged.
    """

    def __init__(self, address: RedisAddress, sink: Sink | None, window: float) -> None:
        self._address = address
        # Weak, because the subscription's thread refers to this object, and must not keep the client alive.
        self._sink = weakref.ref(sink) if sink is not None else None
        self._window = window
        #: The subscription that receives pushes; None: there is none.
        self.subscription: Subscription | None = None
        self._numbers = itertools.count(1)
        #: The latest poll of each key. Threads set and pop keys without a mutex, each in one step.
        self._polls: dict[str, Poll] = {}
        self._many = _MANY

    def poll(self, request: LockRequest) -> tuple[int, bytes]:
        """Register a poll of *request* before it is sent. Return its number, and our entry in the queue."""
        number, before = next(self._numbers), self._polls.get(request.key)
        entry = _NOTHING if before is None else before.entry
        latest = self._polls[request.key] = Poll(request, number, clock.now(), before)
        if len(self._polls) > self._many:
            self._prune(latest.sent - _ABANDONED_AFTER)
        return number, entry

    def queued(self, request: LockRequest, entry: bytes) -> None:
        """Note that the latest poll of *request* was answered: *entry* is in the queue."""
        if (latest := self._polls.get(request.key)) is not None:
            latest.entry, latest.before = entry, None

    def entry(self, request: LockRequest) -> bytes:
        """Return the entry of *request* in the server's queue; `_PERHAPS` if it is uncertain."""
        if request.unanswered and request.wait:
            return _PERHAPS
        latest = self._polls.get(request.key)
        if latest is None:
            return _NOTHING
        if latest.entry.startswith(_PERHAPS):
            return _PERHAPS
        return latest.entry if latest.request.token == request.token else _NOTHING

    def forget(self, request: LockRequest) -> None:
        """Note that *request* no longer waits."""
        latest = self._polls.get(request.key)
        # A request that gives up late must not remove the poll of a later one.
        if latest is None or latest.request.token != request.token:
            return
        if latest.before is None:
            self._polls.pop(request.key, None)
        else:
            self._polls[request.key] = latest.before

    def may_queue(self) -> bool:
        """Return whether the process has tried to subscribe. Before that it would get no pushes."""
        return self.subscription is not None and self.subscription.tried.is_set

    def interpret(self, request: LockRequest, reply: Sequence[Any]) -> Acquired | Queued | Busy:
        """Return the answer to *request*. *reply*: any reply but `FOREIGN`.

        Raises `BackendUnavailable` if another process's hold had no lifetime.
        """
        if reply[1] == HELD:
            self.forget(request)
            request.number = int(reply[2])
            if request.mode == READ:
                return Acquired(request.number, request.ttl, followed=reply[3] > 0)
            if request.mode == PERMIT:
                return Acquired(request.number, request.ttl, other_limit=int(reply[4]))
            return Acquired(request.number, request.ttl)
        if reply[1] == BUSY:
            return Busy()
        if reply[1] == UNENDING:
            raise unending(self._address, hold_key(request.key))
        self.queued(request, reply[4])
        subscription = self.subscription
        hears = subscription is not None and subscription.subscribed
        poll = _poll_interval(int(reply[2]), int(reply[3]), hears)
        if subscription is not None and not request.prompt:
            subscription.stay_until(clock.now() + poll)
        return Queued(poll)

    def waiting(self) -> list[LockRequest]:
        """Return the requests that wait, as far as this process knows."""
        return [poll.request for poll in list(self._polls.values())]

    def receive(self, payload: bytes) -> None:
        """Handle a message on this process's channel: ``<poll> <number> <window, ms> <key>``.

        After an empty message the process looks at all its holds: an operator has broken one, or its release
        was requested.
        """
        sink = None if self._sink is None else self._sink()
        if sink is None:
            return
        if not payload:
            sink.missed_notifications()
            return
        poll, number, window, key = _parts(payload)
        latest = self._polls.get(key)
        if latest is None or latest.request.mode != EXCLUSIVE:
            sink.notified(key)
        elif latest.number != poll or clock.now() >= latest.sent + self._window / 2:
            # The push is old, and the lock may have been handed on since, so the waiter has to poll.
            sink.notified(key)
        elif window < 1000 * self._window:
            # The other process has a shorter window, so the hold may end earlier than we assume.
            sink.notified(key)
        else:
            latest.request.number = number
            sink.handed_off(key, latest.request.token, number, latest.sent)

    def _prune(self, then: float) -> None:
        """Drop polls that were sent before *then*: requests that were given up in an outage left them."""
        for key, poll in list(self._polls.items()):
            if poll.sent <= then and self._polls.get(key) is poll:
                self._polls.pop(key, None)
        self._many = max(_MANY, 2 * len(self._polls))


def _poll_interval(pttl: int, interval_ms: int, subscribed: bool) -> float:
    """Return the seconds until the next poll.

    *pttl*: the remaining lifetime of the hold, in milliseconds; see ``answers.lua``. *interval_ms*: the poll
    interval of our place in the queue, in milliseconds, for a process that gets notifications.
    """
    if pttl == -2:
        return _UNDECIDED
    poll = interval_ms / 1000 if subscribed else max(_SHORTEST, interval_ms / 1000 * _DEAF)
    spread = random.random()  # noqa: S311 - spreads clients, hides nothing
    if pttl >= 0 and interval_ms <= _FRONT:
        low, high = _AFTER
        after = pttl / 1000 + low + (high - low) * spread
        if after < poll:
            return after
    return poll * (0.75 + 0.25 * spread)


def _parts(payload: bytes) -> tuple[int, int, int, str]:
    """Return poll, number, window and key in *payload*; for any other text, zeros and that text as key."""
    *numbers, key = payload.split(b" ", 3)
    if len(numbers) == 3 and key and all(part.isdigit() and len(part) <= _DIGITS for part in numbers):
        poll, number, window = map(int, numbers)
        return poll, number, window, key.decode("utf-8", "replace")
    return 0, 0, 0, payload.decode("utf-8", "replace")
