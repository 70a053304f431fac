"""Flask runs async views in another thread: what the guards of the request hold goes with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from flask import Flask

from distlock.current_grants import current_grants, passed_on

Async = Callable[..., Coroutine[Any, Any, Any]]


def pass_on(app: Flask) -> None:
    """Let each coroutine that *app* runs for a thread hold what the thread holds, which waits for it."""
    run = app.async_to_sync

    def async_to_sync(function: Async) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            mine = current_grants()
            if not mine:
                return run(function)(*args, **kwargs)

            async def passing() -> Any:
                with passed_on(mine):
                    return await function(*args, **kwargs)

            return run(passing)()

        return call

    app.async_to_sync = async_to_sync  # type: ignore[method-assign,assignment]
