"""A sale of the first deploy and one of an old server, while the first deploy's view is still to return.

Run as ``python -m tests.docs.changing_over_in_django HOW REDIS POSTGRESQL``, where HOW is what the first
deploy has: ``plain``, ``fence`` or ``row``. It prints how many of the two sales the stock shows.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import django
import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, models
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path


def configure(how: str, redis_url: str, database_url: str) -> ModuleType:
    database = urlsplit(database_url)
    alias: dict[str, Any] = {"LOCATION": redis_url, "PREFIX": "shop"}
    urls = ModuleType("urls_of_the_change_over")
    sys.modules[urls.__name__] = urls
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": database.path[1:],
                "HOST": database.hostname,
                "PORT": database.port,
                "USER": database.username,
            }
        },
        DISTLOCK={
            "default": {
                "plain": alias,
                "fence": alias | {"FENCE": True},
                "row": {"BACKEND": "database", "PREFIX": "shop"},
            }[how]
        },
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=urls.__name__,
    )
    django.setup()
    return urls


def main() -> None:
    how, redis_url, database_url = sys.argv[1:]
    urls = configure(how, redis_url, database_url)
    from django_distlock import distributed_lock

    class Product(models.Model):
        stock = models.IntegerField(default=0)

        class Meta:
            app_label = "shop"

    r = redis.Redis.from_url(redis_url)
    released, go_on = threading.Event(), threading.Event()

    def sell(id: int) -> None:
        with r.lock(f"product_{id}", timeout=60):
            product = Product.objects.get(id=id)
            product.stock += 1
            product.save()

    def old(request: HttpRequest, id: int) -> HttpResponse:
        sell(id)
        return HttpResponse("sold")

    @distributed_lock("product_<int:id>")
    def first(request: HttpRequest, id: int) -> HttpResponse:
        sell(id)
        released.set()
        assert go_on.wait(60)
        return HttpResponse("sold")

    urls.urlpatterns = [path("old/<int:id>", old), path("first/<int:id>", first)]  # type: ignore[attr-defined]
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Product)
    Product.objects.create(id=1)

    def buy(where: str) -> None:
        assert Client().post(where).status_code == 200
        connections.close_all()

    threads = [threading.Thread(target=buy, args=[where]) for where in ("/first/1", "/old/1")]
    threads[0].start()
    assert released.wait(60)
    threads[1].start()
    # The old server has sold, or waits for the row that the first deploy's transaction has written.
    threads[1].join(1.0)
    go_on.set()
    for thread in threads:
        thread.join()
    print(Product.objects.get(id=1).stock)


if __name__ == "__main__":
    main()
