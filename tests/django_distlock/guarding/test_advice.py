"""What the check can't know, a request is refused for: what its error says to write does help."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from distlock import current_grant
from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

pytestmark = pytest.mark.django_db(transaction=True)
View = Callable[..., HttpResponse]
ABOVE = "Write @distributed_lock above whatever opens it, transaction.atomic or a decorator of your own"
WRAPS = "Decorators between it and the URL need functools.wraps"


def sell(request: HttpRequest, id: int) -> HttpResponse:
    Group.objects.create(name="sold")
    assert connection.in_atomic_block
    return HttpResponse(current_grant().names[0])


lock = distributed_lock("product_<int:id>")
locked = lock(sell)


def without_wraps(view: View) -> View:
    handed = [view]  # Where the check does not look.

    def inner(request: HttpRequest, id: int) -> HttpResponse:
        return handed[0](request, id=id)

    return inner


def with_wraps(view: View) -> View:
    return functools.wraps(view)(without_wraps(view))


class Calls:
    """An object in the URLconf that calls a view which it finds by itself."""

    def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
        return locked(request, id=id)


def opening(view: View) -> View:
    """A decorator of the site's own."""

    @functools.wraps(view)
    def inner(request: HttpRequest, id: int) -> HttpResponse:
        with transaction.atomic():
            return view(request, id=id)

    return inner


CASES: dict[str, tuple[bool, Any, str, Any]] = {
    "a decorator without functools.wraps": (True, without_wraps(locked), WRAPS, with_wraps(locked)),
    "an object that only calls it": (True, Calls(), "on the view itself", locked),
    "a decorator of one's own with a transaction": (False, opening(locked), ABOVE, lock(opening(sell))),
}


@pytest.mark.parametrize(("atomic_requests", "view", "advice", "heeded"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("method", ["post", "get"])
def test_each_line_of_the_advice_helps(
    serve: Callable[..., Client],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    atomic_requests: bool,
    view: View,
    advice: str,
    heeded: View,
    method: str,
) -> None:
    settings.DISTLOCK = "memory://advice"
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)

    def answer(served: View) -> bytes:
        client = serve([path("product/<int:id>", served, name="buy")])
        return bytes(getattr(client, method)("/product/1").content)

    with pytest.raises(ConfigurationError) as refused:
        answer(view)
    text = str(refused.value)
    assert advice in text
    assert not Group.objects.exists()

    assert answer(heeded) == b"product_1"
    Group.objects.all().delete()
    settings.DISTLOCK_RULES = eval(text[text.index("[{") : text.index("}]") + 2])
    settings.MIDDLEWARE = [text[text.index("with '") :].split("'")[1]]
    assert answer(view) == b"product_1"
    assert Group.objects.count() == 1
    locks.close_all()
