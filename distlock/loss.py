"""Telling that a lock was lost: the log, and whoever asked for it. The grant itself knows before both."""

from __future__ import annotations

import logging
from collections.abc import Callable

from distlock.grant import Grant, NameGrant

logger = logging.getLogger("distlock")

#: Told of each lost grant: the grant, and why it was lost. It should return soon: the keeper waits for it.
OnLost = Callable[[Grant, str], None]


def tell(grant: NameGrant, why: str, on_lost: OnLost | None) -> None:
    logger.error("The lock %r (fence %d:%d) was lost: %s.", grant.name, *grant.fence, why)
    if on_lost is not None:
        try:
            on_lost(grant, why)
        except (Exception, SystemExit):
            # Not even an exit may end the keeper, which tells the others.
            logger.exception("on_lost failed for the lock %r.", grant.name)
