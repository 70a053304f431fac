from __future__ import annotations

from flask import request

from demo_shop.flask_shop.app import app as shop
from flask_distlock.signals import lock_acquired
from tests.demo_shop.stalling import stalling, tell_inside

app = stalling(shop)


def acquired(sender: object, **others: object) -> None:
    tell_inside(request.environ)


lock_acquired.connect(acquired, shop)
