"""Settings of the Django shop, as few as possible."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from demo_shop import SQLITE_PRAGMAS
from demo_shop.guards import configured

SHOP = configured()
DISTLOCK = SHOP.distlock()

SECRET_KEY = "nothing is signed here"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True
ROOT_URLCONF = "demo_shop.django_shop.urls"
INSTALLED_APPS = ["django_distlock", "demo_shop.django_shop"]
# There are no cookies, so CsrfViewMiddleware would protect nothing, and refuse Locust's requests.
MIDDLEWARE = [
    "demo_shop.django_shop.middleware.InstanceNameMiddleware",
    "demo_shop.django_shop.middleware.ConnectionMiddleware",
]
if SHOP.journal or SHOP.stall:
    MIDDLEWARE.append("demo_shop.django_shop.middleware.Journal")
# Without debug mode, Django would mail errors and not log them.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"log": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["log"], "level": "WARNING"},
    "loggers": {"django.request": {"level": "ERROR"}},
}
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).resolve().parents[1]],
    }
]

ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_url = urlsplit(SHOP.database)
if _url.scheme == "sqlite":
    _database: dict[str, object] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": unquote(_url.path)[1:],
        "OPTIONS": {"init_command": ";".join(SQLITE_PRAGMAS)},
    }
else:
    if ENGINES[_url.scheme] == "mysql":
        import pymysql

        # Django wants mysqlclient, which is compiled with MariaDB's headers. PyMySQL is pure Python, and has
        # the same interface.
        pymysql.install_as_MySQLdb()
    _database = {
        "ENGINE": f"django.db.backends.{ENGINES[_url.scheme]}",
        "NAME": unquote(_url.path)[1:],
        "HOST": unquote(_url.hostname or ""),
        "PORT": _url.port or "",
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        # The URL's query goes to the driver, as with SQLAlchemy.
        "OPTIONS": dict(parse_qsl(_url.query)),
    }
# Each thread keeps its connection, because opening one for each request would be most of the work.
DATABASES = {"default": _database | {"CONN_MAX_AGE": None, "ATOMIC_REQUESTS": SHOP.atomic_requests}}
