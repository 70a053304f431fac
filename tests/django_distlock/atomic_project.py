"""A Django project with ``ATOMIC_REQUESTS`` on PostgreSQL, sold out by threads through the real handler.

Run as ``python -m tests.django_distlock.atomic_project PORT GUARD``; prints a line of JSON.
"""

from __future__ import annotations

import functools
import json
import sys
import threading

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

THREADS = 8
POSTS = 8
STOCK = 40

#: A COMMIT takes a while where disks and replicas are real. Here it does in every run, whatever the guard.
SLOW_COMMIT = """
CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON sale
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION be_slow();
"""


RULES = {
    "DISTLOCK_RULES": [{"route": "buy", "lock": "product_<id>"}],
    "MIDDLEWARE": ["django_distlock.middleware.DistlockMiddleware"],
}


#: A lock that keeps nobody out: what is shown then is the fence's work.
NO_LOCK = {"DISTLOCK": {"default": {"BACKEND": "dummy", "FENCE": True}}}

SETTINGS = {"rule": RULES, "fence": NO_LOCK}


def configure(port: int, guard: str) -> None:
    lock = {"DISTLOCK": {"default": {"LOCATION": "memory://atomic", "TIMEOUT": 60}}}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": "127.0.0.1",
                "PORT": port,
                "NAME": "shop",
                "USER": "shop",
                "ATOMIC_REQUESTS": True,
            }
        },
        INSTALLED_APPS=["django_distlock"],
        # There are no users.
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
        ROOT_URLCONF=__name__,
        SECRET_KEY="tests only",
        **lock | SETTINGS.get(guard, {}),
    )
    django.setup()


def buy(request: HttpRequest, id: int) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
        (stock,) = cursor.fetchone()
        if stock < 1:
            return HttpResponse("sold out", status=409)
        cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock - 1, id])
        cursor.execute("INSERT INTO sale (product) VALUES (%s)", [id])
    return HttpResponse("sold")


def let_go_with_the_decorator(view):
    """The control: the same lock, taken and released inside Django's transaction."""
    from django_distlock import locks

    @functools.wraps(view)
    def wrapper(request, id):
        with locks.lock(f"product_{id}", in_transaction=True):
            return view(request, id)

    return wrapper


def by_class(base: type, decorate, decorate_method=lambda method: method):
    """The view as a class, guarded as a whole or on its method."""

    class Buy(base):
        @decorate_method
        def post(self, request, id: int) -> HttpResponse:
            return buy(request, id)

    return decorate(Buy).as_view()


def by_rest(decorate, decorate_method=lambda method: method):
    from rest_framework.views import APIView

    return by_class(APIView, decorate, decorate_method)


def guarded(guard: str):
    from django_distlock import distributed_lock

    guards = {
        "rule": lambda view: view,
        "distributed": distributed_lock("product_<int:id>"),
        "fence": distributed_lock("product_<int:id>"),
        "control": let_go_with_the_decorator,
        "class": lambda view: by_class(View, distributed_lock("product_<int:id>")),
        "rest": lambda view: by_rest(distributed_lock("product_<int:id>")),
        "rest control": lambda view: by_rest(lambda cls: cls, method_decorator(let_go_with_the_decorator)),
    }
    return guards[guard](buy)


def sell_out() -> list[int]:
    application = get_wsgi_application()
    statuses: list[int] = []
    start = threading.Barrier(THREADS)

    def post() -> int:
        environ = RequestFactory().post("/product/1/buy").environ
        response = application(environ, lambda status, headers: None)
        list(response)
        response.close()
        return response.status_code

    def shop() -> None:
        start.wait()
        for _ in range(POSTS):
            while (status := post()) == 503:
                # Overtaken: nothing happened, and the answer says to try again.
                pass
            statuses.append(status)
        connections.close_all()

    threads = [threading.Thread(target=shop) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def main() -> None:
    global urlpatterns
    configure(int(sys.argv[1]), sys.argv[2])
    urlpatterns = [path("product/<int:id>/buy", guarded(sys.argv[2]), name="buy")]
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS product, sale, distlock_fence, django_migrations")
        cursor.execute("CREATE TABLE product (id int PRIMARY KEY, stock int NOT NULL)")
        cursor.execute("CREATE TABLE sale (id serial PRIMARY KEY, product int NOT NULL)")
        cursor.execute("INSERT INTO product VALUES (1, %s)", [STOCK])
        cursor.execute(SLOW_COMMIT)
    call_command("migrate", verbosity=0)
    statuses = sell_out()
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM sale), (SELECT stock FROM product)")
        sold, left = cursor.fetchone()
    answers = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(json.dumps({"sold": sold, "left": left, "answers": answers}))


if __name__ == "__main__":
    main()
