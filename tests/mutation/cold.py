"""``python -m tests.mutation.cold``: run pytest in processes forked from one that has loaded libraries.

That takes longer than `tests.mutation.warm`, but all of ours is loaded after the fork, so that any line may
be changed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured

from tests.mutation.kept_databases import use_kept_databases
from tests.mutation.warm import PIPES, Watcher, adopt_orphans, end_leftovers

# Not hypothesis, nor another plugin: pytest wants to be the first who loads it.
LIBRARIES = (
    "asyncio", "concurrent.futures", "email.message", "http.client", "http.server", "multiprocessing",
    "execnet", "packaging.version", "pdb", "sqlite3", "ssl", "tomllib", "unittest.mock",
    "xml.etree.ElementTree", "asgiref.sync", "click", "django.contrib.auth.models",
    "django.core.handlers.asgi", "django.db.models", "django.core.handlers.wsgi", "django.test",
    "django.test.client", "flask", "flask_sqlalchemy", "hiredis", "kazoo.client", "psycopg", "pymysql",
    "redis", "redis.asyncio", "redis.sentinel", "redis.cluster", "sqlalchemy", "sqlalchemy.orm",
    "werkzeug.serving", "opentelemetry.trace", "prometheus_client", "sqlparse", "jinja2",
)  # fmt: skip


def main() -> None:
    read, write = map(int, os.environ.pop(PIPES).split(","))
    for name in LIBRARIES:
        # Django's models ask for settings and apps. What they import before is loaded all the same.
        with suppress(ImproperlyConfigured, AppRegistryNotReady):
            importlib.import_module(name)
    adopt_orphans()
    with os.fdopen(read, encoding="utf-8") as requests, os.fdopen(write, "w", buffering=1) as answers:
        answers.write("ready\n")
        for line in requests:
            child = os.fork()
            if child == 0:
                run(json.loads(line))
            answers.write(f"{child}\n")
            os.waitpid(child, 0)
            end_leftovers()
            answers.write("ended\n")


def run(request: dict[str, Any]) -> None:
    """Run the tests of *request* in this process, write its result, and end."""
    import pytest

    os.setsid()
    os.environ.update(request["environment"])
    use_kept_databases()
    try:
        watcher = Watcher(request["tests"])
        options = ["-q", "-x", "-p", "no:cacheprovider", f"--timeout={request['timeout']}"]
        code = int(pytest.main([*options, *request["tests"]], plugins=[watcher]))
        watcher.write(request["result"], code)
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
