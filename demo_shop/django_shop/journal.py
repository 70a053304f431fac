"""The moments of a purchase that lie outside of the view, in Django: see `demo_shop.moments`."""

from __future__ import annotations

import json

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from demo_shop.django_shop.middleware import Answer
from demo_shop.moments import HEADER, begin, reach
from django_distlock.signals import lock_acquired, lock_released


class Journal:
    """Notes whose purchase it is, when the guard has its lock, and what is answered."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response
        lock_acquired.connect(self.granted)
        lock_released.connect(self.released)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Also where it has no name: a thread would go on with that of its last one.
        begin(request.headers.get(HEADER, ""))
        response = self.get_response(request)
        if HEADER not in request.headers:
            return response
        code = json.loads(response.content).get("code")
        reach(settings.SHOP, "answered", status=response.status_code, code=code)
        return response

    def granted(self, **_: object) -> None:
        reach(settings.SHOP, "granted")

    def released(self, **_: object) -> None:
        reach(settings.SHOP, "released")
