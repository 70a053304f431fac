"""One process of a shop that sells in batches: eight threads buy from it at once, through its real handler.

Run as ``python -m tests.batches.site FRAMEWORK DATABASE REDIS BATCH POSTS TTL HALT``. It says ``ready``,
begins at the next line of its input, and prints a line of JSON: how often each status was answered, and what
was sold. The first sale goes on when all other threads wait for the lock, so that they are one batch. In the
view of sale number HALT, if that is not 0, it says ``halted``, and goes on at the next line.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from distlock.engine import wait_queue
from distlock.testing.waits import engine_of
from tests.redis_server import eventually
from tests.transactions.till import ask_wsgi

THREADS = 8
PREFIX = "batches"


class Halt:
    def __init__(self) -> None:
        self.at = 0
        #: How many callers of this process wait for the lock.
        self.waiting: Callable[[], int]
        self._sold = itertools.count(1)

    def sold(self) -> None:
        """In the view, before its end."""
        number = next(self._sold)
        if number == 1:
            eventually(lambda: self.waiting() == THREADS - 1, "all others wait for the lock")
        if number == self.at:
            print("halted", flush=True)
            sys.stdin.readline()


halt = Halt()


def django_site(database: str, redis: str, batch: int | None, ttl: float) -> tuple[Any, Callable[[], None]]:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.db import connection, connections
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    import tests.transactions.django_site as site

    default = site.databases(database, "default")["default"] | {"NAME": urlsplit(database).path[1:]}

    class Urls:
        urlpatterns: list[Any] = []

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": default},
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": PREFIX, "TIMEOUT": 60, "TTL": ttl}},
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=Urls,
        SECRET_KEY="tests only",
    )
    django.setup()
    from django_distlock import distributed_lock, locks

    halt.waiting = lambda: engine_of(locks["default"]).queues.waiting

    @distributed_lock("product_<int:id>", fence=True, batch=batch)
    def buy(request: HttpRequest, id: int) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
            (stock,) = cursor.fetchone()
            if stock < 1:
                return HttpResponse(status=409)
            cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock - 1, id])
            cursor.execute("INSERT INTO sale (id) VALUES (%s)", [request.GET["order"]])
        halt.sold()
        return HttpResponse("sold")

    Urls.urlpatterns = [path("product/<int:id>/buy", buy)]
    return get_wsgi_application(), connections.close_all


def flask_site(database: str, redis: str, batch: int | None, ttl: float) -> tuple[Any, Callable[[], None]]:
    from flask import Flask, request
    from flask_sqlalchemy import SQLAlchemy
    from sqlalchemy import text

    from demo_shop.ledger import database_url
    from flask_distlock import DistLock, distributed_lock

    app = Flask(__name__)
    app.config.update(
        SQLALCHEMY_DATABASE_URI=database_url(database),
        SQLALCHEMY_ENGINE_OPTIONS={"pool_size": THREADS},
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": PREFIX, "TIMEOUT": 60, "TTL": ttl}},
    )
    db = SQLAlchemy(app)
    locks = DistLock(app)
    with app.app_context():
        client = locks["default"]
    halt.waiting = lambda: engine_of(client).queues.waiting

    @app.post("/product/<int:id>/buy")
    @distributed_lock("product_<int:id>", fence=True, batch=batch)
    def buy(id: int) -> Any:
        stock = db.session.execute(text("SELECT stock FROM product WHERE id = :id"), {"id": id}).scalar_one()
        if stock < 1:
            return "sold out", 409
        values = {"id": id, "left": stock - 1, "order": request.args["order"]}
        db.session.execute(text("UPDATE product SET stock = :left WHERE id = :id"), values)
        db.session.execute(text("INSERT INTO sale (id) VALUES (:order)"), values)
        halt.sold()
        db.session.commit()
        return "sold"

    return app.wsgi_app, lambda: None


def main() -> None:
    logging.disable()
    framework, database, redis, batch, posts, ttl, halt_at = sys.argv[1:]
    halt.at = int(halt_at)
    # All that stand in line are to be in one batch, however slow the machine is.
    wait_queue.TURN = 60.0
    make = {"django": django_site, "flask": flask_site}[framework]
    application, leave = make(database, redis, int(batch) or None, float(ttl))
    answers: Counter[str] = Counter()
    sold: list[str] = []
    start = threading.Barrier(THREADS)

    def shop() -> None:
        start.wait()
        for _ in range(int(posts)):
            order = uuid.uuid4().hex
            answer = ask_wsgi(application, f"order={order}")
            answers[answer.status] += 1
            if answer.status == "200":
                sold.append(order)
        leave()

    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=shop) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"answers": answers, "sold": sold}), flush=True)


if __name__ == "__main__":
    main()
