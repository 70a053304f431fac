"""What uvicorn serves: ``demo_shop.django_shop.asgi:application``."""

from __future__ import annotations

import os
from typing import Any

import django
from django.core.handlers.asgi import ASGIHandler

# Not setdefault: the environment may already name another Django project.
os.environ["DJANGO_SETTINGS_MODULE"] = "demo_shop.django_shop.async_settings"


class OneThreadHandler(ASGIHandler):
    """Handler that does the database work of all requests in one thread, with one connection that is kept.

    Django's own handler gives each open request a thread, from before its view until its end: a thousand
    buyers in line for a lock would be a thousand threads.
    """

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("only HTTP is answered here")
        await self.handle(scope, receive, send)


django.setup(set_prefix=False)
application = OneThreadHandler()
