"""gunicorn with 16 threads over a pool of 4 connections, and a middleware that reads: everything is sold."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from demo_shop.ledger import database_url
from tests.databases import Databases
from tests.web.quickstart import buy, two_instances

BUYERS, PURCHASES, STOCK = 48, 4, 60

#: Three of four requests have a session, and come to the lock with a connection.
SITE = """
import itertools
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="tests only",
    INSTALLED_APPS=["django_distlock"],
    MIDDLEWARE=[f"{__name__}.reading_first"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql",
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 4, "timeout": 20}},
        "ATOMIC_REQUESTS": True,
        **DATABASE,
    }},
    DISTLOCK={"default": {"LOCATION": "LOCKS", "TIMEOUT": 120}},
)
import django
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse
from django.urls import path

django.setup()
from django_distlock import distributed_lock

requests = itertools.count()


def execute(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else None


def reading_first(get_response):
    def middleware(request):
        if next(requests) % 4:
            execute("SELECT 1")
        return get_response(request)

    return middleware


@distributed_lock("product_<id>")
def reduce_stock(request, id):
    (stock,) = execute("SELECT stock FROM product")
    if stock < 1:
        return HttpResponse("sold out", status=409)
    execute(f"UPDATE product SET stock = {stock - 1}")
    return HttpResponse("sold")


urlpatterns = [path("products/<int:id>/reduce", reduce_stock)]
application = get_wsgi_application()
"""


@pytest.mark.fault("F34")
def test_waiters_do_not_starve_the_holder_of_connections(databases: Databases, tmp_path: Path) -> None:
    url = make_url(databases("postgresql", "pooled_server"))
    engine = create_engine(database_url(url.render_as_string(hide_password=False)))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE product (stock integer)"))
        connection.execute(text(f"INSERT INTO product VALUES ({STOCK})"))
    database = {"NAME": url.database, "HOST": url.host, "PORT": url.port, "USER": url.username}
    site = SITE.replace("DATABASE,", f"{database!r},").replace("LOCKS", f"file://{tmp_path}/locks")
    (tmp_path / "site_with_pool.py").write_text(site)

    with two_instances(tmp_path, "site_with_pool:application", threads=16) as ports:
        statuses = buy(ports, {}, BUYERS, PURCHASES)

    with engine.connect() as connection:
        left = connection.execute(text("SELECT stock FROM product")).scalar_one()
    engine.dispose()
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    expected = [200] * STOCK + [409] * (BUYERS * PURCHASES - STOCK)
    assert (sorted(statuses), left) == (expected, 0), logs[-3000:]
