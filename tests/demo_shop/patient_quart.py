"""The Quart shop, whose buyers wait as long as it takes; ``/waiting`` tells how many have begun to."""

from __future__ import annotations

import distlock
from demo_shop.quart_shop import views
from demo_shop.quart_shop.app import app as app
from distlock.listening import Attempt, Listener

waiting = 0


class Waits(Attempt):
    def contended(self, holder: object) -> None:
        global waiting
        waiting += 1


class Count(Listener):
    def asked(self, names: object, where: object) -> Attempt:
        return Waits()


views.locks = distlock.connect(views.SHOP.lock, prefix="shop", timeout=300, listener=Count())


@app.get("/waiting")
async def tell() -> str:
    return str(waiting)
