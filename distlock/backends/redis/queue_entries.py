"""What a process waits for at the server, and what a push that hands a lock off to it is worth.

The replies to requests tell the first, messages on the process's channel the second.
Pushes and polls travel on different connections. So each poll has a number, and a push echoes the number of
the poll that it answers. The hold of a push counts from the sending of that poll, because it was granted
later.
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

#: The entry of a process that is in no queue; the prefix of an entry that an unanswered request may have
#: changed.
_NOTHING, _PERHAPS = b"", b"?"

#: The largest number that a server counts to has this many digits.
_DIGITS = 16

#: The server drops a waiter that has not polled for this many seconds: see ``queue.lua``.
_GONE = 60.0
#: Abandoned polls are pruned above this count.
_MANY = 1000

#: A process without a subscription hears no notifications, so it polls after this share of the interval.
_DEAF = 0.1
#: How long after the end of another's hold to poll, seconds: spread, because several waiters do.
_AFTER = (0.005, 0.05)
#: Only waiters at the front do that; they poll within this many milliseconds anyway.
_FRONT = 1000
#: Seconds until the next poll if the lock is free, but its queue was too long for one call to clear.
_UNDECIDED = 0.01


class Poll:
    """The latest poll that was sent for a key."""

    __slots__ = ("before", "entry", "number", "request", "sent")

    def __init__(self, request: LockRequest, number: int, sent: float, before: Poll | None) -> None:
        self.request = request
        self.number = number
        self.sent = sent
        #: Our entry in the server's queue, uncertain until the poll is answered.
        self.entry: bytes = _PERHAPS + (_NOTHING if before is None else before.entry.removeprefix(_PERHAPS))
        #: The poll of another request, whose place in the queue this request takes if it has to wait. A
        #: reader that asks whether it may go on reading takes no place.
        self.before: Poll | None = None
        if before is not None:
            before.before, self.before = (
                None,
                before if before.request.token != request.token else before.before,
            )


class QueueEntries:
    """The polls and queue entries of one process.

    *window* is how long a hold lasts that was handed off and not acknowledged, seconds.
    """

    def __init__(self, address: RedisAddress, sink: Sink | None, window: float) -> None:
        self._address = address
        # Weak: the subscription's thread refers to this, and may not keep a dropped client alive.
        self._sink = weakref.ref(sink) if sink is not None else None
        self._window = window
        #: Where the process hears of its turn; None: nowhere.
        self.subscription: Subscription | None = None
        self._numbers = itertools.count(1)
        #: By key. Threads add and pop; each is one atomic step.
        self._polls: dict[str, Poll] = {}
        self._many = _MANY

    def poll(self, request: LockRequest) -> tuple[int, bytes]:
        """Register a poll of *request* before it is sent. Return its number, and our entry in the queue."""
        number, before = next(self._numbers), self._polls.get(request.key)
        entry = _NOTHING if before is None else before.entry
        latest = self._polls[request.key] = Poll(request, number, clock.now(), before)
        if len(self._polls) > self._many:
            self._prune(latest.sent - _GONE)
        return number, entry

    def queued(self, request: LockRequest, entry: bytes) -> None:
        """Note that the latest poll of *request* was answered: *entry* is in the queue."""
        if (latest := self._polls.get(request.key)) is not None:
            latest.entry, latest.before = entry, None

    def entry(self, request: LockRequest) -> bytes:
        """Return the entry of *request* in the server's queue, as far as it is known."""
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
        # A request that gives up late must not remove its successor.
        if latest is None or latest.request.token != request.token:
            return
        if latest.before is None:
            self._polls.pop(request.key, None)
        else:
            self._polls[request.key] = latest.before

    def may_queue(self) -> bool:
        """Return whether the process has tried to subscribe. Before that it would not hear a hand-off."""
        return self.subscription is not None and self.subscription.tried.is_set

    def interpret(self, request: LockRequest, reply: Sequence[Any]) -> Acquired | Queued | Busy:
        """Return the answer to *request*; not for `FOREIGN`. Raises `BackendUnavailable`."""
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
        """Return the requests that wait, as far as is known."""
        return [poll.request for poll in list(self._polls.values())]

    def receive(self, payload: bytes) -> None:
        """Handle a message on this process's channel: ``<poll> <number> <window, ms> <key>``.

        An empty message says that an operator broke a hold.
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
            # The push may name a grant that has long passed to another process: a request will tell.
            sink.notified(key)
        elif window < 1000 * self._window:
            # The process that handed it off has another setting, and the hold ends earlier than we assume.
            sink.notified(key)
        else:
            latest.request.number = number
            sink.handed_off(key, latest.request.token, number, latest.sent)

    def _prune(self, then: float) -> None:
        """Drop polls sent before *then*: requests given up during a long outage are never cancelled."""
        for key, poll in list(self._polls.items()):
            if poll.sent <= then and self._polls.get(key) is poll:
                self._polls.pop(key, None)
        self._many = max(_MANY, 2 * len(self._polls))


def _poll_interval(pttl: int, rest: int, subscribed: bool) -> float:
    """Return after how many seconds to poll again behind a hold that has *pttl* milliseconds to live.

    *rest* is after how many milliseconds a waiter in our place has to poll if it hears notifications.
    """
    if pttl == -2:
        return _UNDECIDED
    poll = rest / 1000 if subscribed else rest / 1000 * _DEAF
    spread = random.random()  # noqa: S311 - spreads clients, hides nothing
    if pttl >= 0 and rest <= _FRONT:
        low, high = _AFTER
        after = pttl / 1000 + low + (high - low) * spread
        if after < poll:
            return after
    return poll * (0.75 + 0.25 * spread)


def _parts(payload: bytes) -> tuple[int, int, int, str]:
    """Return poll, number, window and key. Any other text is a notification for the key that it names."""
    *numbers, key = payload.split(b" ", 3)
    if len(numbers) == 3 and key and all(part.isdigit() and len(part) <= _DIGITS for part in numbers):
        poll, number, window = map(int, numbers)
        return poll, number, window, key.decode("utf-8", "replace")
    return 0, 0, 0, payload.decode("utf-8", "replace")
