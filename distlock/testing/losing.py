"""Have a lock be lost, as if its lock service had given it to somebody else."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, runtime_checkable

from distlock import reentrance
from distlock.engine.grantor import Grantor
from distlock.engine.hold import NameGrant
from distlock.errors import BackendUnavailable
from distlock.grants.grant import Grant
from distlock.owner import in_event_loop


@runtime_checkable
class Losable(Protocol):
    """A grant without a lock service, as one of the backend ``dummy``."""

    def lose(self, why: str) -> None: ...


def lose_grant(grant: Grant, why: str) -> None:
    """*grant*, of one name, is lost from now on, because of *why*; its lock is free on the lock service."""
    if isinstance(grant, Losable):
        grant.lose(why)
    elif isinstance(grant, NameGrant) and isinstance(grant._grantor, Grantor):
        hold = grant._hold
        # When this returns it is told, unless callbacks might stop an event loop.
        grant._grantor.lose(hold, why, cancel=False, off_thread=in_event_loop())
        with suppress(BackendUnavailable):
            reentrance.call(grant._grantor.backend.release, hold.request)
