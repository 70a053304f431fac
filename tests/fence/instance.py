"""One instance of a shop, in Django or in Flask, that halts where it is told to.

Run as ``python -m tests.fence.instance '{"framework": "django", "database": …}'``. It obeys lines:

* ``sell POINT``: serve one request. At *POINT* it says ``at POINT``, and goes on after another line. In the
  place of ``sell`` stands one of `HOOKS` where a hook is to write. If that line is `BUSY`, it keeps the
  interpreter busy until a further line comes; if it is `GREEDY`, it takes a gigabyte of memory.
* ``fork``: fork a child that does nothing, and say ``forked PID``.
* ``rush``: buy until everything is sold, with four threads, and again after every 423 and 503; see `PAUSE`.

and says ``ready``, and what each request was answered: ``answered 200``, ``answered 503 lock_lost``.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

import distlock
from tests.transactions.till import Answer, ask_wsgi

POINTS = ("before the fence", "before the read", "after the read", "before COMMIT", "before release")
#: The line that makes an instance call into C, and stay there.
BUSY = "stay in C"
#: The line that makes an instance use much memory.
GREEDY, GIGABYTE = "take memory", 1 << 30
SHOPPERS = 4
#: What a purchase takes longer in a rush, seconds: on a quick machine one instance could sell everything
#: while the other one connects, or waits for the end of a lease.
PAUSE = 0.005

#: How an ``on_commit`` hook writes down what a view of Django has decided.
HOOKS = ("atomic", "robust", "nested", "autocommit")


@dataclass(frozen=True)
class Order:
    """What to start."""

    framework: str
    database: str
    redis: str
    name: str
    fence: bool
    ttl: float
    timeout: float = 3.0
    epoch: int = 1
    #: Whether the view takes a lock at all.
    lock: bool = True
    prefix: str = "stalled"
    #: Django: with ``ATOMIC_REQUESTS``; else the view opens its transaction by itself.
    atomic: bool = True
    #: Of the backend.
    options: dict[str, Any] = field(default_factory=dict)

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @property
    def distlock(self) -> dict[str, Any]:
        service = {
            "LOCATION": self.redis,
            "TTL": self.ttl,
            "TIMEOUT": self.timeout,
            "FENCE_EPOCH": self.epoch,
        }
        return {"default": service | {"FENCE": self.fence, "PREFIX": self.prefix, "OPTIONS": self.options}}


def say(line: str) -> None:
    """One write: the lines of two threads that print() run together."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Halt:
    """Where this instance is to halt."""

    def __init__(self) -> None:
        self.at = ""
        self.pause = 0.0

    def reach(self, point: str) -> None:
        if self.at == point:
            self.at = ""
            say(f"at {point}")
            line = sys.stdin.readline().strip()
            if line == BUSY:
                # A function of a PyDLL keeps the GIL while it runs, as a long match of `re` does: no other
                # thread of this process goes on until the byte comes.
                ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), ctypes.c_size_t(1))
            elif line == GREEDY:
                taken = bytearray(GIGABYTE)
                # Touch each page: until then none is used.
                taken[::4096] = bytes(GIGABYTE // 4096)


halt = Halt()
Execute = Callable[..., Any]


def sell(name: str, execute: Execute) -> int:
    """Sell a piece and note who did, and under which fence. *execute* gives the rows of a query."""
    halt.reach("before the read")
    [(stock,)] = execute("SELECT stock FROM product WHERE id = 1")
    halt.reach("after the read")
    time.sleep(halt.pause)
    if stock < 1:
        return 409
    write_down(name, execute, stock)
    return 200


def write_down(name: str, execute: Execute, stock: int) -> None:
    execute("UPDATE product SET stock = :left WHERE id = 1", left=stock - 1)
    try:
        epoch, number = distlock.current_grant().fence
    except distlock.NotHeld:
        epoch, number = 0, 0  # The order is for a view without a lock.
    written = {"seller": name, "epoch": epoch, "number": number}
    halt.reach("between two statements")
    execute("INSERT INTO sale (seller, epoch, number) VALUES (:seller, :epoch, :number)", **written)


def django_site(order: Order) -> Any:
    from contextlib import nullcontext

    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.db import connection, transaction
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.http import HttpResponse
    from django.urls import path

    import tests.transactions.django_site as site

    default = site.databases(order.database, "default")["default"]
    default |= {"NAME": urlsplit(order.database).path[1:]}

    class Urls:
        urlpatterns: list[Any] = []

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": default | {"ATOMIC_REQUESTS": order.atomic}},
        DISTLOCK=order.distlock,
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=Urls,
        SECRET_KEY="tests only",
    )
    django.setup()
    from django_distlock import distributed_lock
    from django_distlock.signals import lock_acquired

    def execute(statement: str, **values: Any) -> Any:
        with connection.cursor() as cursor:
            for word in values:
                statement = statement.replace(f":{word}", f"%({word})s")
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else ()

    def buy(request: Any, id: int) -> HttpResponse:
        with nullcontext() if order.atomic else transaction.atomic():
            if (kind := request.META["QUERY_STRING"]) not in HOOKS:
                return HttpResponse(status=sell(order.name, execute))
            [(stock,)] = execute("SELECT stock FROM product WHERE id = 1")
            if stock < 1:
                return HttpResponse(status=409)

            def hook() -> None:
                halt.reach("in the hook")
                with nullcontext() if kind == "autocommit" else transaction.atomic():
                    write_down(order.name, execute, stock)

            def once_more() -> None:
                with transaction.atomic():
                    transaction.on_commit(hook)

            transaction.on_commit(once_more if kind == "nested" else hook, robust=kind == "robust")
            return HttpResponse()

    commit = BaseDatabaseWrapper.commit

    def halting(self: Any) -> None:
        halt.reach("before COMMIT")
        commit(self)
        halt.reach("before release")

    BaseDatabaseWrapper.commit = halting
    lock_acquired.connect(before_the_fence)
    view = distributed_lock("product_<int:id>")(buy) if order.lock else buy
    Urls.urlpatterns = [path("product/<int:id>/buy", view)]
    return get_wsgi_application()


def flask_site(order: Order) -> Any:
    from flask import Flask
    from flask_sqlalchemy import SQLAlchemy
    from sqlalchemy import Engine, event, text
    from sqlalchemy.orm import Session

    from demo_shop.ledger import database_url
    from flask_distlock import DistLock
    from flask_distlock.signals import lock_acquired

    app = Flask(__name__)
    app.config.update(SQLALCHEMY_DATABASE_URI=database_url(order.database), DISTLOCK=order.distlock)
    db, locks = SQLAlchemy(app), DistLock(app)

    def execute(statement: str, **values: Any) -> Any:
        result = db.session.execute(text(statement), values)
        return result.fetchall() if result.returns_rows else ()

    def buy(id: int) -> Any:
        status = sell(order.name, execute)
        db.session.commit()
        return "", status

    view = locks.distributed_lock("product_<int:id>")(buy) if order.lock else buy
    app.add_url_rule("/product/<int:id>/buy", view_func=view, methods=["POST"])
    event.listen(Engine, "commit", lambda connection: halt.reach("before COMMIT"))
    event.listen(Session, "after_commit", lambda session: halt.reach("before release"))
    lock_acquired.connect(before_the_fence, app)
    return app.wsgi_app


def before_the_fence(*sender: object, **about: object) -> None:
    halt.reach("before the fence")


def answered(answer: Answer) -> str:
    code = json.loads(answer.body)["code"] if b'"code"' in answer.body else ""
    return f"answered {answer.status} {code}".strip()


def rush(application: Any) -> None:
    """Buy until nothing is left."""
    halt.pause = PAUSE

    def shop() -> None:
        while (answer := ask_wsgi(application)).status in {"200", "423", "503"}:
            say(answered(answer))
        say(answered(answer))

    shoppers = [threading.Thread(target=shop) for _ in range(SHOPPERS)]
    for shopper in shoppers:
        shopper.start()
    for shopper in shoppers:
        shopper.join()


def main() -> None:
    logging.disable()
    order = Order(**json.loads(sys.argv[1]))
    application = {"django": django_site, "flask": flask_site}[order.framework](order)
    say("ready")
    for line in iter(sys.stdin.readline, ""):
        word, _, halt.at = line.strip().partition(" ")
        if word == "rush":
            rush(application)
            say("done")
        elif word == "fork":
            if not (child := os.fork()):
                signal.pause()
            say(f"forked {child}")
        else:
            say(answered(ask_wsgi(application, word)))


if __name__ == "__main__":
    main()
