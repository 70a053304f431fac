"""Telling that a lock was lost: the log, and the callbacks. The grant itself knows before both.

G7 lives here: the keeper and the lock service's messages find a loss before the lease ends.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from distlock.engine.hold import Hold
from distlock.engine.name_grant import NameGrant
from distlock.grant import Grant

logger = logging.getLogger("distlock")

#: Why a hold is lost that the lock service does not confirm.
GIVEN_ON = "it was broken, or the lock service forgot it or gave it on"

#: Told of each lost grant, one after the other: the grant, and why it was lost.
OnLost = Callable[[Grant, str], None]


class Lose(Protocol):
    """What a part of the engine calls, without the mutex, that finds *hold* lost.

    *why*: what its grant is told. *retire*: whether the service may still think that it is. *aside*: whether
    `on_lost` is called elsewhere: the threads that find losses have more to look after.
    """

    def __call__(self, hold: Hold, why: str, retire: bool, aside: bool = True) -> None: ...


class Losses:
    """Tells of the losses of one client. What is done about them takes its time, and renewals don't wait."""

    def __init__(self, on_lost: OnLost | None, threads: bool) -> None:
        self._on_lost = on_lost
        self._threads = threads
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: the losses are the parent's."""
        self._mutex = threading.RLock()
        self._untold: deque[tuple[Grant, str]] = deque()
        self._thread: threading.Thread | None = None

    def tell(self, grant: NameGrant, why: str) -> None:
        """Log it, and call `on_lost` here."""
        self._log(grant, why)
        self._call(grant, why)

    def tell_aside(self, grant: NameGrant, why: str) -> None:
        """Log it, and have `on_lost` called in a thread of its own, in the order of the losses."""
        self._log(grant, why)
        if self._on_lost is None:
            return
        if not self._threads:
            self._call(grant, why)
            return
        with self._mutex:
            self._untold.append((grant, why))
            if self._thread is not None and self._thread.is_alive():
                return
            self._thread = threading.Thread(target=self._serve, name="distlock-on-lost", daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError as error:
                logger.warning("on_lost keeps renewals waiting, no thread could be started for it: %s", error)
        self._serve()

    def join(self) -> None:
        """Wait until all of them are told, unless it is `on_lost` that waits."""
        with self._mutex:
            thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._mutex:
                if not self._untold:
                    self._thread = None
                    return
                grant, why = self._untold.popleft()
            self._call(grant, why)

    def _log(self, grant: NameGrant, why: str) -> None:
        logger.error("The %s was lost: %s.", grant.shown(), why)

    def _call(self, grant: Grant, why: str) -> None:
        if self._on_lost is None:
            return
        try:
            self._on_lost(grant, why)
        except (Exception, SystemExit):
            # Not even an exit may keep the others from being told.
            logger.exception("on_lost failed for the lock %s.", ", ".join(map(repr, grant.names)))
