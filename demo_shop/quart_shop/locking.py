"""The lock around a view. distlock has no guard for Quart: ``async with`` is all that it takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from quart import request

import distlock
from demo_shop.guards import Decorator, View
from demo_shop.once import HEADER, lock_names
from demo_shop.quart_shop.database import SHOP
from demo_shop.sale import Line, Refusal, contended, product_names

locks = distlock.connect(SHOP.lock, backend=SHOP.lock_backend or None, prefix="shop", ttl=SHOP.lock_ttl)


def locked(fenced: bool) -> Decorator:
    """The lock of all products of a sale. *fenced*: the view is given the grant, to pass its fence."""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        async def inside(lines: Sequence[Line]) -> Any:
            names = [*lock_names(request.headers.get(HEADER)), *product_names(lines)]
            try:
                async with locks.lock(*names) as grant:
                    return await view(lines, grant if fenced else None)
            except distlock.LockError as error:
                raise refusal(error) from error

        return inside

    return decorate


def refusal(error: distlock.LockError) -> Refusal:
    """What a buyer is told. Raises *error* itself where it is a mistake of ours."""
    match error:
        case distlock.LockTimeout() | distlock.TooManyWaiters():
            return contended()
        case distlock.BackendUnavailable():
            return Refusal(503, "lock_backend_unavailable", "Nothing can be sold just now. Please try again")
        case distlock.LostInside():
            return Refusal(500, "lock_lost_inside", "Perhaps this was sold. Please look at your orders")
        case distlock.LockLost():
            return Refusal(503, "lock_lost", "This took too long, and nothing was sold. Please try again")
    raise error
