"""The thread that hears what sessions tell without being asked: a lock that is ours, and their end."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from distlock.backends.advisory.failures import Gone
from distlock.backends.advisory.session import ENDED, Session

if TYPE_CHECKING:
    from distlock.backends.advisory.sessions import Sessions

#: Seconds after which a session that nobody needs is closed.
KEPT = 10.0
#: Seconds for which it waits for a session in which somebody speaks: who speaks hears what is told, too.
_BUSY = 0.05


class Listener:
    """Lives as long as there are sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._stopped = self._abandoned = False
        #: Guards the pipe. A garbage collection may come back to it.
        self._mutex = threading.RLock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="distlock-sessions", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.forget()
            raise Gone(str(error)) from error

    def wake(self) -> None:
        """There is something else to listen to."""
        # Full: it has been told already.
        with self._mutex, suppress(BlockingIOError):
            if not self._closed:
                os.write(self._mouth, b".")

    def stop(self) -> None:
        """It is over when this returns."""
        self._stopped = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def abandon(self) -> None:
        self._abandoned = self._stopped = True
        self.wake()

    def forget(self) -> None:
        """No thread runs, here."""
        self._closed = True
        os.close(self._ear)
        os.close(self._mouth)

    def _run(self) -> None:
        try:
            while not self._stopped:
                sessions = self._sessions.trim(KEPT)
                if not sessions and self._sessions.leave(self):
                    return
                self._hear({one.wire.fileno: one for one in sessions if not one.gone})
            if self._abandoned:
                self._sessions.abandon()
        finally:
            with self._mutex:
                self.forget()

    def _hear(self, sessions: dict[int, Session]) -> None:
        poller = select.poll()
        poller.register(self._ear, select.POLLIN)
        for fileno, one in sessions.items():
            awaited = one.waits is not None and not one.told
            poller.register(fileno, ENDED | (select.POLLIN if awaited else 0))
        for fileno, _ in poller.poll(KEPT * 1000 / 2):
            if fileno == self._ear:
                with suppress(BlockingIOError):
                    os.read(self._ear, 4096)
            else:
                self._look_at(sessions[fileno])

    def _look_at(self, session: Session) -> None:
        if not session.mutex.acquire(timeout=_BUSY):
            return
        waits = None
        try:
            if session.gone:
                return
            if session.waits is None:
                # It ended, or a call has read meanwhile what was there.
                session.wire.is_answered()
            elif session.wire.is_answered():
                session.told, waits = True, session.waits[0]
        except Gone:
            session.gone = True
        finally:
            session.mutex.release()
        if session.gone:
            self._sessions.lose(session)
        elif waits is not None and self._sessions.ears is not None:
            self._sessions.ears.notified(waits.key)
