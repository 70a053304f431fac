"""A Django project whose customers spend their balance, on one database.

``python -m tests.django_distlock.fresh.site URL spend NAME …`` prints a line of JSON for each arrangement,
and ``… URL cases`` one for each function of cases.py.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import traceback
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.management import call_command

BANK = "tests.django_distlock.fresh.bank"
CONTRIB = ("contenttypes", "auth", "sessions")


def database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        options = {"timeout": 60, "transaction_mode": "IMMEDIATE"}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:], "OPTIONS": options}
    place = {"HOST": "127.0.0.1", "PORT": parts.port, "USER": "shop", "NAME": parts.path[1:]}
    if parts.scheme == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    return {"ENGINE": f"django.db.backends.{parts.scheme}", **place}


def configure(url: str) -> None:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        AUTH_USER_MODEL="bank.Customer",
        DATABASES={"default": database(url)},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DISTLOCK={"default": {"LOCATION": f"file://{tempfile.mkdtemp()}", "TIMEOUT": 60}},
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in CONTRIB),
            "rest_framework",
            "rest_framework.authtoken",
            "django_distlock",
            BANK,
        ],
        LOGGING_CONFIG=None,
        MIGRATION_MODULES=dict.fromkeys([*CONTRIB, "authtoken"]),
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        SECRET_KEY="tests only",
        USE_TZ=True,
    )
    logging.disable()
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)


def run_cases() -> dict[str, str]:
    """Return what each case came to: ``passed``, or how it failed."""
    from tests.django_distlock.fresh import cases, cases_of_authentication, cases_of_values

    results: dict[str, str] = {}
    every = {**vars(cases), **vars(cases_of_values), **vars(cases_of_authentication)}
    for name, case in every.items():
        if name.startswith("case_"):
            try:
                case()
                results[name] = "passed"
            except BaseException:
                results[name] = traceback.format_exc()
    return results


def main() -> None:
    url, what, *names = sys.argv[1:]
    configure(url)
    if what == "cases":
        print(json.dumps(run_cases()))
        return
    from tests.django_distlock.fresh.spending import spend

    for name in names:
        print(json.dumps(spend(name)), flush=True)


if __name__ == "__main__":
    main()
