from __future__ import annotations

from typing import Any

from demo_shop.django_shop.wsgi import application as shop
from django_distlock.signals import lock_acquired
from tests.demo_shop.stalling import stalling, tell_inside

application = stalling(shop)


def acquired(sender: object, request: Any, **others: object) -> None:
    tell_inside(request.META)


lock_acquired.connect(acquired)
