"""What ``atomic(grant)`` and ``transaction(grant, session)`` share: where they can't begin, and waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from distlock.backends.base import Capabilities, refuse_lacking
from distlock.clock import now
from distlock.errors import ConfigurationError
from distlock.grants.grant import Grant


def time_left(grant: Grant) -> Callable[[], float]:
    """Seconds that may be waited for transactions of earlier grants, from now on: as long as for the lock."""
    deadline = now() + grant.timeout if grant.timeout >= 0 else math.inf
    return lambda: deadline - now()


def refuse_unfit(call: str, grant: Grant) -> None:
    """Raise `ConfigurationError` where *call* can't begin a transaction under *grant*.

    In a coroutine a database would stop the whole event loop. A lock that is a row has one already, and one
    of a lock service that does not number its locks can't be fenced.
    """
    if grant.held_by_transaction:
        raise ConfigurationError(
            f"The lock {', '.join(map(repr, grant.names))} is a row, and this block is its transaction "
            f"already: leave {call} out."
        )
    if grant.unnumbered_by is not None:
        refuse_lacking(grant.unnumbered_by, Capabilities(), "fence", call)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{call} waits for a database, and no other task of this event loop would run meanwhile. Write lock "
        "and transaction in a plain function, and call that with asyncio.to_thread() or sync_to_async()."
    )
