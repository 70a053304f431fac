"""Decorators as sites have them, and a class to stand them on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.views import MethodView

from tests.flask_distlock.guarding.recorded_shop import RecordedShop


def login_required(view: Any) -> Any:
    @functools.wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def without_wraps(view: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def async_decorator(view: Any) -> Any:
    @functools.wraps(view)
    async def wrapper(**kwargs: Any) -> Any:
        return await view(**kwargs)

    return wrapper


def through_ensure_sync(app: Flask) -> Callable[[Any], Any]:
    """As Flask-Login's login_required does."""

    def decorate(view: Any) -> Any:
        @functools.wraps(view)
        def wrapper(**kwargs: Any) -> Any:
            return app.ensure_sync(view)(**kwargs)

        return wrapper

    return decorate


def method_view(shop: RecordedShop, *, decorators: tuple[Any, ...] = (), is_async: bool = False) -> Any:
    if is_async:

        class AsyncBuy(MethodView):
            async def post(self, id: int) -> str:
                return await shop.abuy(id)

        cls: Any = AsyncBuy
    else:

        class Buy(MethodView):
            def post(self, id: int) -> str:
                return shop.buy(id)

        cls = Buy
    cls.decorators = decorators
    return cls
