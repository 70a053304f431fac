"""A shop in either framework, which notes who comes in and who leaves. `flood_server` serves it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from distlock.engine import admission

DISTLOCK: dict[str, dict[str, object]] = {
    "default": {
        "LOCATION": os.environ.get("FLOOD_LOCATION", "memory://"),
        "TIMEOUT": float(os.environ.get("FLOOD_TIMEOUT", "120")),
        **({"MAX_WAITERS_TOTAL": int(os.environ["FLOOD_CAP"])} if "FLOOD_CAP" in os.environ else {}),
    }
}

#: How long a purchase takes under its lock, seconds.
HOLD = float(os.environ.get("FLOOD_HOLD", "0"))

if "FLOOD_ADMITS_ALL" in os.environ:
    admission.expected_wait = lambda room, now: 0.0

Application = Callable[..., Iterable[bytes]]


def noting(application: Application) -> Application:
    """One line for each request that gets a thread, and one for each that leaves it."""
    log = os.open(os.environ["FLOOD_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        os.write(log, f"in {path}\n".encode())
        answer = list(application(environ, start_response))
        os.write(log, f"out {path}\n".encode())
        return answer

    return served


def sold() -> str:
    time.sleep(HOLD)
    return "sold"


def django_site() -> Application:
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DISTLOCK=DISTLOCK,
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="tests only",
    )
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    application = get_wsgi_application()
    from django_distlock import distributed_lock

    buy = distributed_lock("product_<id>")(lambda request, id: HttpResponse(sold()))
    globals()["urlpatterns"] = [path("buy/<int:id>", buy)]
    return noting(application)


def flask_site() -> Application:
    from flask import Flask

    from flask_distlock import DistLock, distributed_lock

    app = Flask(__name__)
    app.config["DISTLOCK"] = DISTLOCK
    DistLock(app)
    app.post("/buy/<int:id>", endpoint="buy")(distributed_lock("product_<id>")(lambda id: sold()))
    return noting(app.wsgi_app)
