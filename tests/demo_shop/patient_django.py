"""The async shop, whose buyers wait as long as it takes; ``/waiting`` tells how many have begun to."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from demo_shop.django_shop.asgi import application as shop
from django_distlock.signals import lock_contended

settings.DISTLOCK["default"]["TIMEOUT"] = 300
waiting = 0


def count(**_: object) -> None:
    global waiting
    waiting += 1


lock_contended.connect(count)


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["path"] != "/waiting":
        await shop(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(waiting).encode()})
