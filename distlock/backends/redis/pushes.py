"""What a process waits for, by its latest polls, and what the pushes that hand it over are worth.

Push and poll travel on different connections. So each poll has a number, which the push echoes, and a push
counts from the sending of the poll that it echoes: it was granted after that.
"""

from __future__ import annotations

import itertools
import weakref

from distlock import clock
from distlock.backends.base import EXCLUSIVE, LockRequest, Sink

#: What a process has in a queue: nothing. And before what a request without an answer may have changed.
_NOTHING, _PERHAPS = b"", b"?"

#: The largest number that a server counts to has so many.
_DIGITS = 16

#: A waiter that has not asked again for so many seconds is in no queue any more: see ``queue.lua``.
_GONE = 60.0
#: Those are looked for when there are so many.
_MANY = 1000


class Poll:
    """The latest one that was sent for a key."""

    __slots__ = ("before", "entry", "number", "request", "sent")

    def __init__(self, request: LockRequest, number: int, sent: float, before: Poll | None) -> None:
        self.request = request
        self.number = number
        self.sent = sent
        #: What stands in the queue. Until the answer is there, nobody knows for sure.
        self.entry: bytes = _PERHAPS + (_NOTHING if before is None else before.entry.removeprefix(_PERHAPS))
        #: That of another ask, whose place in the queue this one takes if it has to wait. A reader that asks
        #: whether it may go on does not.
        self.before: Poll | None = None
        if before is not None:
            before.before, self.before = (
                None,
                before if before.request.token != request.token else before.before,
            )


class Pushes:
    """Those of one process. *window*: what a hand-off is worth until it is acknowledged, seconds."""

    def __init__(self, sink: Sink | None, window: float) -> None:
        # Weak: the listener's thread has these, and may not keep a client alive that was dropped.
        self._sink = weakref.ref(sink) if sink is not None else None
        self._window = window
        self._numbers = itertools.count(1)
        #: By key. Threads add and pop; each is one step.
        self._polls: dict[str, Poll] = {}
        self._many = _MANY

    def poll(self, request: LockRequest) -> tuple[int, bytes]:
        """A poll of *request* is about to be sent.

        Returns its number, and the entry that stands in the queue.
        """
        number, before = next(self._numbers), self._polls.get(request.key)
        entry = _NOTHING if before is None else before.entry
        latest = self._polls[request.key] = Poll(request, number, clock.now(), before)
        if len(self._polls) > self._many:
            self._forget_until(latest.sent - _GONE)
        return number, entry

    def queued(self, request: LockRequest, entry: bytes) -> None:
        """The answer to the latest poll of *request*: it stands in the queue as *entry*."""
        if (latest := self._polls.get(request.key)) is not None:
            latest.entry, latest.before = entry, None

    def entry(self, request: LockRequest) -> bytes:
        """What stands of *request* in the queue."""
        if request.unanswered and request.wait:
            return _PERHAPS
        latest = self._polls.get(request.key)
        if latest is None:
            return _NOTHING
        if latest.entry.startswith(_PERHAPS):
            return _PERHAPS
        return latest.entry if latest.request.token == request.token else _NOTHING

    def forget(self, request: LockRequest) -> None:
        """*request* does not wait any more."""
        latest = self._polls.get(request.key)
        # What is given up late may not take its successor along.
        if latest is None or latest.request.token != request.token:
            return
        if latest.before is None:
            self._polls.pop(request.key, None)
        else:
            self._polls[request.key] = latest.before

    def _forget_until(self, then: float) -> None:
        """Nobody tells of what was given up while the server was away for long."""
        for key, poll in list(self._polls.items()):
            if poll.sent <= then and self._polls.get(key) is poll:
                self._polls.pop(key, None)
        self._many = max(_MANY, 2 * len(self._polls))

    def waiting(self) -> list[LockRequest]:
        """What waits, as far as is known."""
        return [poll.request for poll in list(self._polls.values())]

    def heard(self, payload: bytes) -> None:
        """A message on the channel of this process: ``<poll> <number> <window, ms> <key>``.

        Empty: a hold was broken.
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
            # It may name a grant that has long passed to another. To ask tells.
            sink.notified(key)
        elif window < 1000 * self._window:
            # The process that handed it over has another setting, and the hold ends before we count on it.
            sink.notified(key)
        else:
            latest.request.number = number
            sink.handed_off(key, latest.request.token, number, latest.sent)


def _parts(payload: bytes) -> tuple[int, int, int, str]:
    """Poll, number, window and key. What is no push of ours is a hint for whatever it names."""
    *numbers, key = payload.split(b" ", 3)
    if len(numbers) == 3 and key and all(part.isdigit() and len(part) <= _DIGITS for part in numbers):
        poll, number, window = map(int, numbers)
        return poll, number, window, key.decode("utf-8", "replace")
    return 0, 0, 0, payload.decode("utf-8", "replace")
