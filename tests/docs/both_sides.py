"""Runs the table of one page of docs/from: each line of the other lock, and ours beside it.

Run as ``python -m tests.docs.both_sides PAGE REDIS POSTGRESQL``. Prints a line of JSON for each row: the two
lines of code, and the truth of their values where both are expressions.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

PAGES = Path(__file__).resolve().parents[2] / "docs" / "from"


def rows(page: str) -> list[tuple[str, str]]:
    """Return the pairs of lines in the table that says what differs. The second one may be ""."""
    found = re.search(r"^\| [^|]+ \| distlock \| what differs \|\n((?:\|.*\n)+)", page, re.MULTILINE)
    table = found[1] if found else ""
    return re.findall(r"^\| `([^`|]+)` \| (?:`([^`|]+)`)? ?\|", table, re.MULTILINE)


def blocks(page: str, redis: str, postgresql: str) -> list[str]:
    """The page's Python blocks, with the servers of the test."""
    page = page.replace("redis://localhost:6379/0", redis).replace("postgresql://localhost/shop", postgresql)
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run(line: str, names: dict[str, Any]) -> bool | None:
    """Return the truth of an expression's value. Statements have none."""
    try:
        code = compile(line, line, "eval")
    except SyntaxError:
        exec(compile(line, line, "exec"), names)
        return None
    return bool(eval(code, names))


def work(*_: object) -> str:
    return "done"


def workers(side: dict[str, Any]) -> dict[str, Callable[[int], Any]]:
    """Return the work of the task that the page makes, and a call of it while a worker is in that work."""
    inside, go_on, wanted = threading.Event(), threading.Event(), set[int]()

    def write(day: int) -> str:
        if day in wanted:
            inside.set()
            assert go_on.wait(60)
        return "done"

    def meanwhile(day: int) -> Any:
        wanted.add(day)
        worker = threading.Thread(target=lambda: side["report"].delay(day))
        worker.start()
        assert inside.wait(60)
        answer = side["report"].delay(day)
        go_on.set()
        worker.join()
        return answer

    return {"write": write, "meanwhile": meanwhile}


def main() -> None:
    name, redis, postgresql = sys.argv[1:]
    database = urlsplit(postgresql)
    settings.configure(
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis}},
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": database.path[1:],
                "HOST": database.hostname,
                "PORT": database.port,
                "USER": database.username,
            }
        },
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": "shop"}},
        INSTALLED_APPS=["django_distlock", "pgactivity", "pglock"],
    )
    django.setup()
    page = (PAGES / name).read_text("utf-8")
    sides: list[dict[str, Any]] = [{"__name__": side, "work": work} for side in ("theirs", "ours")]
    for side, block in zip(sides, blocks(page, redis, postgresql), strict=False):
        if name == "celery-once.md":
            side.update(workers(side))
        exec(compile(block, name, "exec"), side)
    for lines in rows(page):
        values = [run(line, side) if line else None for line, side in zip(lines, sides, strict=True)]
        print(json.dumps([*lines, *values]), flush=True)


if __name__ == "__main__":
    main()
