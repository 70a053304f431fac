"""The line of each ttl, with the session that it has of its own, and who looks after it."""

from __future__ import annotations

import threading
from contextlib import suppress

from distlock.backends.base import Sink
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.janitor import Janitor
from distlock.backends.zookeeper.line import Line
from distlock.backends.zookeeper.nodes import FOLDER
from distlock.backends.zookeeper.session import Session
from distlock.errors import ConfigurationError

#: Sessions cost threads. More ttls than this are most likely not meant.
_MOST_SESSIONS = 8


class Lines(dict[float, tuple[Line, Janitor]]):
    """Those of one process. Threads share it."""

    def __init__(self, address: Address, io_timeout: float, ack_window: float) -> None:
        self._address = address
        self._io_timeout = io_timeout
        self._ack_window = ack_window
        self._mutex = threading.Lock()
        #: Until the next session: what we had ended with the last, or is about to.
        self.closed = False

    def of(self, ttl: float, sink: Sink) -> Line:
        """That of *ttl*. A new one tells *sink* what it hears. Raises `ConfigurationError`."""
        found = self.get(ttl)
        if found is not None and not found[0].session.dead:
            return found[0]
        with self._mutex:
            found = self.get(ttl)
            again = found is not None and found[0].session.dead
            if found is not None and again:
                del self[ttl]
                # It may take a while, and nobody has to wait for it.
                found[0].session.replaced = True
                found[1].leave_alone()
                found = None
            if found is None:
                if len(self) >= _MOST_SESSIONS:
                    raise ConfigurationError(
                        f"More than {_MOST_SESSIONS} different ttls are in use. ZooKeeper needs a session "
                        "for each: use fewer."
                    )
                session = Session(self._address, ttl, self._io_timeout, sink, again)
                line = Line(session, f"{self._address.chroot}/{FOLDER}", self._ack_window, sink)
                janitor = Janitor(line)
                janitor.start()
                found = self[ttl] = (line, janitor)
                self.closed = False
            return found[0]

    def ready(self, ttl: float, key: str) -> Line | None:
        """That of *ttl* if nothing has to be waited for before it is asked for *key*."""
        found = self.get(ttl)
        if found is None or not _is_ready(found[0]):
            return None
        if any(line is not found[0] and line.unanswered.awaits(key) for line, _ in list(self.values())):
            return None
        return found[0]

    def any_ready(self) -> Line | None:
        """One that can be asked for what does not depend on a session."""
        return next((line for line, _ in list(self.values()) if _is_ready(line)), None)

    def take_out(self) -> list[Janitor]:
        """Those that look after them, to be closed. Later lines may be opened."""
        with self._mutex:
            self.closed = True
            janitors = [janitor for _, janitor in self.values()]
            # An interrupt may come before its caller is through: they end by themselves then.
            for janitor in janitors:
                janitor.leave_alone()
            self.clear()
        return janitors

    def after_fork(self) -> None:
        """In a forked child: they are the parent's."""
        for line, _ in self.values():
            line.session.wire.forget()
        self._mutex = threading.Lock()
        self.clear()

    def leave_alone(self) -> None:
        """Nobody will ask for any of them again."""
        while self:
            with suppress(KeyError):
                _, (_, janitor) = self.popitem()
                janitor.leave_alone()


def _is_ready(line: Line) -> bool:
    return line.session.connected and not line.session.dead
