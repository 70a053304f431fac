"""The thread that ends what nobody cares for: holds that are not renewed, strays, unused locks.

And that keeps the session alive: kazoo's heartbeats are too far apart for that (`Session.touch`).
"""

from __future__ import annotations

import logging
import threading

from kazoo.protocol.serialization import Delete

from distlock.backends.flag import Flag
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import no_thread
from distlock.backends.zookeeper.line import Line
from distlock.errors import LockError
from distlock.reentrance import call

logger = logging.getLogger(__name__)

#: Seconds between rounds: a tenth of the ttl, within these bounds.
_PERIOD = (0.1, 5.0)


class Janitor:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._period = min(max(_PERIOD[0], line.session.ttl / 10), _PERIOD[1])
        self._closing = Flag()
        self._left_alone = False
        self._ended = False
        self._thread = threading.Thread(
            target=call, args=(self._run,), name="distlock-zookeeper-janitor", daemon=True
        )

    def start(self) -> None:
        try:
            self._thread.start()
        except BaseException as error:
            # An interrupt does not tell whether the thread runs, and nobody will know of it. `Thread.start`
            # makes a RuntimeError of some interrupts.
            self._closing.set()
            if isinstance(error, RuntimeError):
                raise no_thread(self._line.session.address, error) from error
            raise

    def close(self) -> None:
        """Leave nothing behind of the line and its session. Bounded in time.

        Its thread does that: signal handlers run in the main thread, and may raise in there.
        """
        self._left_alone = True
        self.stop()
        if not self._ended:
            # Its thread had been stopped before.
            self._end()

    def stop(self) -> None:
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave_alone(self) -> None:
        """`close`, with the next round. Takes no lock: it is called by the garbage collector, anywhere."""
        self._left_alone = True

    def _run(self) -> None:
        while not self._closing.wait(self._period) and not self._left_alone:
            try:
                self._round()
            except LockError as error:
                logger.debug("Tidying up later: %s", error)
            except Exception:
                logger.exception(
                    "Looking after unused nodes failed with an unexpected error. It is tried again."
                )
        if self._left_alone:
            self._end()

    def _round(self) -> None:
        line, session = self._line, self._line.session
        session.touch()
        line.give_up()
        if session.connected:
            line.strays.sweep(Deadline(session.io_timeout))
            line.leaving.tidy()
            line.announcements.lapse()

    def _end(self) -> None:
        """Leave nothing behind."""
        line = self._line
        for node in list(line.nodes.values()):
            # It is not lost, but given up.
            line.nodes.pop(node.request.token, None)
            line.session.send(Delete(node.path, -1))
            line.parents.put(node.parent)
        for path in line.parents.clear():
            line.session.send(Delete(path, -1))
        line.session.close()
        self._ended = True
