"""Work that callers leave to the maintenance thread: requests to cancel, replies to read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from distlock.backends.base import Backend, LockRequest
from distlock.backends.protocols import Posts
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.sans_io import Call, Commands
from distlock.errors import BackendUnavailable, LockError

#: Seconds from the first cancellation of a request to the second.
AGAIN = 1.0
#: Seconds after a release in which a later call may read its reply. Then the maintenance thread has it read.
SOON = 0.08
#: How many seconds the maintenance thread waits for such a reply. A longer wait would delay renewals.
REPLY_TIMEOUT = 0.01


@dataclass(eq=False)
class _Cancellation:
    request: LockRequest
    next_try: float
    give_up: float
    #: Whether the request was cancelled once, and has to be cancelled a second time.
    again: bool = False


class Cancellations:
    """Requests that no caller here wants any more, and that the lock service may still have.

    As soon as the lock service answers, they leave its queue, or their holds are released. A request without
    an answer may be carried out even after its cancellation: a server that stood still reads the two from two
    connections, in any order. So such a request is cancelled twice. `len()` is the number of requests that
    were not cancelled once yet.
    """

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        thread: MaintenanceThread,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._thread = thread
        self.forget()

    def __len__(self) -> int:
        return sum(not one.again for one in self._pending)

    def forget(self) -> None:
        """Forget all requests: at first, and in a forked child."""
        self._pending: list[_Cancellation] = []

    def add(self, request: LockRequest) -> None:
        """Cancel *request* as soon as the lock service answers. The caller owns the mutex."""
        now = self._now()
        # With leases, the request ends by itself.
        give_up = now + 2 * request.ttl if self._backend.capabilities.lease else math.inf
        self._pending.append(_Cancellation(request, now, give_up))
        self._thread.wake_before(now)

    def due(self, now: float) -> float:
        return min((one.next_try for one in self._pending), default=math.inf)

    def is_idle(self) -> bool:
        return not len(self)

    def tick(self, until: Callable[[], float], last: bool = False) -> Commands[None]:
        """Cancel what is due. *last*: the client is being closed, so cancel all, and nothing twice."""
        with self._section.mutex:
            now = self._now()
            if last:
                self._pending = [one for one in self._pending if not one.again]
            # At a close cancel what is not due, too: what is left costs another thread and another close.
            due = [one for one in self._pending if last or one.next_try <= now]
        for one in due:
            with self._section.mutex:
                if self._now() >= until():
                    return
            try:
                if (yield Call(self._backend.cancel, one.request)):
                    yield Call(self._backend.release, one.request)
            except BackendUnavailable:
                self._put_off(due)
                return
            except LockError:
                pass  # A lock service that raises another error has never granted anything.
            with self._section.mutex:
                if one.request.unanswered and not (one.again or last):
                    one.again, one.next_try = True, self._now() + AGAIN
                # Another thread that closes the client at the same time may have removed it.
                elif one in self._pending:
                    self._pending.remove(one)

    def _put_off(self, due: list[_Cancellation]) -> None:
        """Try *due* later, because the lock service does not answer and each try would delay renewals.

        Drop the requests that have ended by themselves.
        """
        with self._section.mutex:
            now = self._now()
            for one in due:
                one.next_try = now + min(1.0, one.request.ttl / 3)
            self._pending = [one for one in self._pending if one.next_try < one.give_up]


class LateClose:
    """Closes the backend once more after a close during which the lock service did not answer.

    To cancel what was left then, the maintenance thread opens the backend again.
    """

    def __init__(self, section: CriticalSection, backend: Backend, cancellations: Cancellations) -> None:
        self._section = section
        self._backend = backend
        self._cancellations = cancellations
        #: Whether the client was closed with requests left, and no caller has asked for a lock since.
        self.wanted = False
        #: Whether the backend is being closed. A caller that came now would lose its connection.
        self.closing = False

    def due(self, now: float) -> float:
        return now if self.wanted and self._cancellations.due(now) == math.inf else math.inf

    def is_idle(self) -> bool:
        return not self.wanted

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Close the backend if all requests are cancelled."""
        with self._section.mutex:
            if self.due(0.0) == math.inf:
                return
            self.wanted, self.closing = False, True
        try:
            yield Call(self._backend.close)
        finally:
            self.closing = False


class ReplyReader:
    """Has the backend read the replies to releases for which no caller waits.

    The next call on a connection reads its pending replies. The maintenance thread has the others read.
    """

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        thread: MaintenanceThread,
    ) -> None:
        self._section = section
        self._backend = backend if isinstance(backend, Posts) else None
        self._now = now
        self._thread = thread
        self.forget()

    def forget(self) -> None:
        """Expect no reply: at first, after a close, and in a forked child."""
        self._due = math.inf
        self._reading = False

    @property
    def any(self) -> bool:
        """Whether there may be a reply that was not read yet."""
        return self._reading or self._due != math.inf

    def await_reply(self, within: float = SOON) -> None:
        """Have a reply read in *within* seconds, unless a call reads it before. The caller owns the mutex."""
        if within < SOON or self._due == math.inf:
            self._due = self._now() + within
            self._thread.wake_before(self._due)

    def due(self, now: float) -> float:
        return self._due

    def is_idle(self) -> bool:
        return not self.any

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Have the backend read the replies that are due. After a close, the backend has read all."""
        with self._section.mutex:
            now = self._now()
            if self._backend is None or now < self._due:
                return
            self._due, self._reading = math.inf, True
        drained = False
        try:
            drained = yield Call(self._backend.settle, until=now + REPLY_TIMEOUT)
        except BackendUnavailable:
            pass
        finally:
            with self._section.mutex:
                self._reading = False
                if not drained:
                    self._due = min(self._due, self._now() + SOON)
