"""The sessions of one process: one at which everything is asked, and some more that wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from distlock.backends.advisory.dialect import Dialect, ServerLock
from distlock.backends.advisory.failures import Gone, Refused
from distlock.backends.advisory.listener import Listener
from distlock.backends.advisory.session import Session
from distlock.backends.base import LockRequest, Sink
from distlock.clock import now


class Sessions:
    """*most*: how many may wait. *patience*: after so many seconds a server that is silent is given up.

    *window*: what a lock is worth that came to one who waits, until it is accepted, seconds.
    """

    def __init__(self, dialect: Dialect, most: int, patience: float, window: float) -> None:
        self._dialect = dialect
        self._most = most
        self._patience = patience
        self._window = window
        self.ears: Sink | None = None
        #: Guards the list, and who waits in which.
        self._mutex = threading.Lock()
        self._all: list[Session] = []
        self._opening = threading.Lock()
        self._listener: Listener | None = None
        #: One broke, and nothing was opened since.
        self._broken = False

    def of(self, request: LockRequest) -> Session | None:
        """Where *request* stands."""
        return next((one for one in self._all if one.has(request)), None)

    def has(self, number: int) -> bool:
        """Whether the session with the server's *number* is one of them."""
        return any(one.number == number for one in self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def desk(self, deadline: float) -> Session:
        """The one that never waits. It is opened if there is none."""
        if (found := self._desk()) is not None:
            return found
        with self._alone(deadline):
            return self._desk() or self._open(deadline, desk=True)

    def for_hold(self, request: LockRequest, deadline: float) -> Session:
        """One that may hold *request*, whose lease is that of what it holds already, where there is one."""
        desk = self.desk(deadline)
        if not desk.holds or desk.ttl == request.ttl:
            return desk
        with self._mutex:
            others = [one for one in self._all if one.waits is None and not one.gone]
        for one in others:
            if one.holds and one.ttl == request.ttl:
                return one
        for one in others:
            if one.is_free():
                return one
        # Beside a shorter lease there, both have the longer one.
        return self._more(deadline) or desk

    def for_wait(self, request: LockRequest, lock: ServerLock, deadline: float) -> Session | None:
        """One that is to wait for *request* and is marked so; None if there may be no more."""
        with self._mutex:
            for one in self._all:
                if one.is_free() and not one.desk:
                    one.waits = request, lock
                    return one
        opened = self._more(deadline)
        if opened is not None:
            with self._mutex:
                if not opened.is_free():
                    return None
                opened.waits = request, lock
        return opened

    def drop(self, session: Session) -> None:
        """It is over, by our own doing. In a block of `Session.taken`."""
        session.gone = True
        with self._mutex, suppress(ValueError):
            self._all.remove(session)
        session.wire.close()

    def lose(self, session: Session) -> None:
        """It broke. Tell those whose locks it held, and who waits in it."""
        session.gone = True
        with self._mutex:
            if session not in self._all:
                return
            self._all.remove(session)
            self._broken = True
        with session.mutex:
            session.wire.close()
            lost, waits = list(session.holds.values()), session.waits
            session.holds.clear()
            session.waits = None
        if self.ears is not None:
            for hold in lost:
                self.ears.lost(hold.request.key, hold.request.token)
            if waits is not None:
                self.ears.notified(waits[0].key)

    def listen(self) -> None:
        """Another session waits: its answer is listened for."""
        with self._mutex:
            if self._listener is not None:
                self._listener.wake()

    def trim(self, idle: float) -> list[Session]:
        """Close what nobody has needed for *idle* seconds. Returns what is left."""
        for one in list(self._all):
            if one.idle() > idle and one.mutex.acquire(blocking=False):
                try:
                    with self._mutex:
                        if not one.idle() > idle:
                            continue
                        one.gone = True
                        self._all.remove(one)
                    one.wire.close()
                finally:
                    one.mutex.release()
        return list(self._all)

    def leave(self, listener: Listener) -> bool:
        """*listener* has nothing to listen to. False: it has, since just now."""
        with self._mutex:
            if self._listener is listener and self._all:
                return False
            if self._listener is listener:
                self._listener = None
            return True

    def leave_alone(self) -> None:
        """Have the listener close all sessions, without waiting for it."""
        if (listener := self._listener) is not None:
            listener.abandon()

    def abandon(self) -> None:
        """In the listener, when nobody else has them."""
        for one in self._all:
            one.wire.close()

    def close(self, deadline: float) -> None:
        with self._mutex:
            taken, self._all = self._all, []
            listener, self._listener = self._listener, None
            self._broken = False
        if listener is not None:
            listener.stop()
        # Waits are cancelled from the main session, because the server does not notice that their clients are
        # gone.
        taken.sort(key=lambda one: not one.desk)
        desk = taken[0] if taken and taken[0].desk else None
        for one in reversed(taken):
            if one.waits is not None and desk is not None:
                with suppress(TimeoutError, Gone, Refused), one.taken(deadline), desk.taken(deadline):
                    self._dialect.call_off(desk.saying(deadline), one.waits[1], one.number)
                    one.wire.answer(deadline)
            # A call that is under way is bounded.
            alone = one.mutex.acquire(timeout=max(self._patience, deadline - now()))
            one.gone = True
            one.wire.close()
            if alone:
                one.mutex.release()

    def forget(self) -> None:
        """In a forked child, which has none of its parent's."""
        if self._listener is not None:
            self._listener.forget()
        for one in self._all:
            with suppress(OSError):
                one.wire.forget()

    def _desk(self) -> Session | None:
        return next((one for one in self._all if one.desk and not one.gone), None)

    def _more(self, deadline: float) -> Session | None:
        """One more, if there may be one and the server has one to spare."""
        with self._alone(deadline), suppress(Gone, Refused):
            if len(self._all) <= self._most:
                return self._open(deadline, desk=False)
        return None

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """For the block nobody else opens a session."""
        if not self._opening.acquire(timeout=max(0.0, deadline - now())):
            raise TimeoutError
        try:
            yield
        finally:
            self._opening.release()

    def _open(self, deadline: float, desk: bool) -> Session:
        wire, number = self._dialect.open(deadline, self._patience, waits=not desk)
        try:
            made = Session(self._dialect, wire, self._patience, self._window, desk, number)
            with self._mutex:
                if self._listener is None:
                    self._listener = Listener(self)
                self._all.append(made)
                self._listener.wake()
                again, self._broken = self._broken, False
        except BaseException:
            wire.close()
            raise
        if again and self.ears is not None:
            self.ears.reconnected()
        return made
