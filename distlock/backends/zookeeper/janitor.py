"""The thread that ends what nobody cares for: holds that are not renewed, strays, unused locks.

And that keeps the session alive: kazoo's heartbeats are too far apart for that (`Session.touch`).
"""

from __future__ import annotations

import logging
import threading

from distlock import clock
from distlock.backends.zookeeper.line import Line
from distlock.errors import LockError

logger = logging.getLogger(__name__)

#: Seconds between rounds: a tenth of the ttl, within these bounds.
_PERIOD = (0.1, 5.0)


class Janitor:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._period = min(max(_PERIOD[0], line.session.ttl / 10), _PERIOD[1])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="distlock-zookeeper-janitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._period):
            try:
                self._round()
            except LockError as error:
                logger.debug("Tidying up later: %s", error)
            except Exception:
                logger.exception("The janitor stumbled. It goes on.")

    def _round(self) -> None:
        line, session = self._line, self._line.session
        session.touch()
        line.give_up()
        if session.connected:
            line.strays.sweep(clock.now() + session.io_timeout)
            line.tidy()
