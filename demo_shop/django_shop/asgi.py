"""The application for uvicorn: ``demo_shop.django_shop.asgi:application``."""

from __future__ import annotations

import os
from typing import Any

import django
from django.core.handlers.asgi import ASGIHandler

# Overwrite the variable, because the environment may name another Django project.
os.environ["DJANGO_SETTINGS_MODULE"] = "demo_shop.django_shop.async_settings"


class OneThreadHandler(ASGIHandler):
    """Handler that does the database work of all requests in one thread, which keeps its connection.

    With Django's own handler each open request has a thread: a thousand buyers who wait for a lock would need
    a thousand threads.
    """

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("only HTTP is answered here")
        await self.handle(scope, receive, send)


django.setup(set_prefix=False)
application = OneThreadHandler()
