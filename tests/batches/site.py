"""One process of a shop that sells in batches: eight threads buy from it at once, through its real handler.

Run as ``python -m tests.batches.site DATABASE REDIS BATCH POSTS``. It says ``ready``, begins at the next
line of its input, and prints a line of JSON: how often each status was answered, and what was sold.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import uuid
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from tests.transactions.till import ask_wsgi

THREADS = 8
PREFIX = "batches"


def django_site(database: str, redis: str, batch: int | None) -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.db import connection
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    import tests.transactions.django_site as site

    default = site.databases(database, "default")["default"] | {"NAME": urlsplit(database).path[1:]}

    class Urls:
        urlpatterns: list[Any] = []

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": default},
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": PREFIX, "TIMEOUT": 60}},
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=Urls,
        SECRET_KEY="tests only",
    )
    django.setup()
    from django_distlock import distributed_lock

    @distributed_lock("product_<int:id>", fence=True, batch=batch)
    def buy(request: HttpRequest, id: int) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
            (stock,) = cursor.fetchone()
            if stock < 1:
                return HttpResponse(status=409)
            cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock - 1, id])
            cursor.execute("INSERT INTO sale VALUES (%s)", [request.GET["order"]])
        return HttpResponse("sold")

    Urls.urlpatterns = [path("product/<int:id>/buy", buy)]
    return get_wsgi_application()


def leave_django() -> None:
    from django.db import connections

    connections.close_all()


def main() -> None:
    logging.disable()
    database, redis, batch, posts = sys.argv[1:]
    application = django_site(database, redis, int(batch) or None)
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
        leave_django()

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
