"""`demo_shop.guards` around async views: what may wait there waits in the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from demo_shop.guards import DISTRIBUTED, Clock, Decorator, View, at_work
from demo_shop.sale import Refusal

if TYPE_CHECKING:
    from demo_shop.configuration import Configuration

#: Those that have an async lock.
OFFERED = ("none", "process", DISTRIBUTED)
#: Of one event loop, and so of one process.
_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


def guarded(
    shop: Configuration,
    distributed: Decorator,
    names: Callable[..., Iterable[str]],
    refuse: Callable[[Refusal], Any],
) -> Decorator:
    """The guard that *shop* names, around an async view: see `demo_shop.guards.guarded`."""
    if shop.guard not in OFFERED:
        raise SystemExit(f"SHOP_GUARD is {shop.guard!r}. Async views have: {', '.join(OFFERED)}.")

    def decorate(view: View) -> View:
        if shop.guard == DISTRIBUTED:
            return timed(view, distributed, refuse)
        if shop.guard == "process":
            return timed(view, functools.partial(locked, names=names), refuse)
        return timed(view, lambda inner: inner, refuse)

    return decorate


def locked(view: View, names: Callable[..., Iterable[str]]) -> View:
    """*view* inside the event loop's locks of all its names."""

    @functools.wraps(view)
    async def inside(*args: Any, **kwargs: Any) -> Any:
        async with AsyncExitStack() as held:
            # In one order: two carts that take their locks in different orders would wait for each other.
            for name in sorted(set(names(*args, **kwargs))):
                await held.enter_async_context(_locks[name])
            # A buyer who goes away cancels this, and what writes in a thread goes on: the lock waits for it.
            work = asyncio.ensure_future(view(*args, **kwargs))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise

    return inside


def timed(view: View, guard: Decorator, refuse: Callable[[Refusal], Any]) -> View:
    """*view* inside *guard*, with ``Server-Timing``."""

    @functools.wraps(view)
    async def work(*args: Any, **kwargs: Any) -> Any:
        with at_work():
            try:
                return await view(*args, **kwargs)
            except Refusal as refusal:
                return refuse(refusal)

    inside = guard(work)

    @functools.wraps(inside)
    async def answer(*args: Any, **kwargs: Any) -> Any:
        clock = Clock.start()
        try:
            response = await inside(*args, **kwargs)
        except Refusal as refusal:
            response = refuse(refusal)
        response.headers["Server-Timing"] = str(clock)
        return response

    return answer
