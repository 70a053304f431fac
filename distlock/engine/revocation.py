"""Revocation: the holder of a name is asked to give it back. Nothing is taken by force.

A request is for the hold: its grants see it, and it is passed on to nobody else in this process. So the next
hold, and all of its grants, know nothing of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from distlock.backends.base import Backend, refuse_lacking
from distlock.backends.notifying import Notifies
from distlock.engine.critical_section import CriticalSection
from distlock.engine.name_grant import NameGrant
from distlock.engine.room import Rooms
from distlock.grant import Grant, OnReleaseRequested
from distlock.reentrance import call, refusal

logger = logging.getLogger("distlock")


class Revocation:
    """*tell*: called for each grant that is wanted back. *threads*: False: in the thread that hears of it."""

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        rooms: Rooms,
        tell: OnReleaseRequested | None,
        threads: bool,
    ) -> None:
        self._section = section
        self._backend = backend
        self._rooms = rooms
        self._tell = tell
        self._threads = threads

    def request(self, key: str) -> bool:
        """Ask everybody who holds *key*. False: nobody does."""
        if self._section.reentered():
            raise refusal()
        backend = self._backend
        refuse_lacking(backend, backend.capabilities, "notify", "request_release()")
        assert isinstance(backend, Notifies)
        told: bool = call(backend.request_release, key)
        return told

    def hear(self, key: str, token: str) -> None:
        """See `distlock.backends.base.Sink.release_requested`."""
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            hold = None if room is None else room.hold_of(token)
            # One that is not known yet is found by its next renewal.
            if hold is None or hold.release_requested or not (grants := hold.grants):
                return
            hold.release_requested = True
        for grant in grants:
            logger.info("The %s is wanted back.", grant.shown())
            told = [one for one in (grant._terms.on_release_requested, self._tell) if one is not None]
            if told and self._threads:
                self._begin(told, grant)
            else:
                _call_all(told, grant)

    def _begin(self, told: list[OnReleaseRequested], grant: NameGrant) -> None:
        """Call *told* in a thread of their own: they may hang, or wait for the very lock."""
        thread = threading.Thread(
            target=_call_all, args=(told, grant), name="distlock-release-requested", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # What heard of it has more to look after. The grant itself knows.
            logger.warning("Nobody was told that %r is wanted back: %s", grant.name, error)


def _call_all(told: list[Callable[[Grant], object]], grant: NameGrant) -> None:
    for one in told:
        try:
            one(grant)
        except (Exception, SystemExit):
            logger.exception("on_release_requested failed for the lock %r.", grant.name)
