"""Names of which nobody can say where one value ends and the next begins."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from django.core.checks import run_checks
from django.urls import path
from flask import Flask

import django_distlock
import flask_distlock
from distlock.web.names.templates import ambiguities, parse

#: Every short value of each converter, over a few characters that matter.
_TEXT = ["".join(word) for n in (1, 2, 3) for word in itertools.product("1_-a", repeat=n)]
VALUES: dict[str, list[Any]] = {
    "int": ["0", "1", "11", "101", "-1"],
    "": [0, 1, 11, 101, -1],
    "slug": [*_TEXT, "1_1_1", "1-1-1", "1_v2_1", "1_v2_1_v2_1"],
    "str": [*_TEXT, ":", "1:1", "a:", ":a", "1:1:1"],
    "uuid": ["00000000-0000-4000-8000-000000000000", "10000000-0000-4000-8000-000000000000"],
}

JOINED = {
    "<slug:a>_<slug:b>": "<slug:a>:<slug:b>",
    "shop_<slug:a>-<slug:b>": "shop_<slug:a>:<slug:b>",
    "<slug:a>_v2_<slug:b>": "<slug:a>:v2:<slug:b>",
    "<slug:a>_<int:b>_<slug:c>": "<slug:a>:<int:b>:<slug:c>",
    "<int:a><int:b>": "<int:a>:<int:b>",
    "<int:a>0<int:b>": "<int:a>:0:<int:b>",
    "<slug:a><int:b>": "<slug:a>:<int:b>",
    "<slug:a>-<int:query.b>": "<slug:a>:<int:query.b>",
    "<slug:a>--<int:query.b>": "<slug:a>:<int:query.b>",
    "<a><b>": "<a>:<b>",
    "<str:a>_<slug:b>": "<str:a>:<slug:b>",
    "<str:a>:<str:b>": None,
}
APART = [
    *dict.fromkeys(line for line in JOINED.values() if line),
    "<slug:a>_<int:b>",
    "<int:a>_<slug:b>",
    "<int:a>_<int:b>",
    "<int:a>-<int:b>",
    "<int:a>-<slug:b>",
    "<slug:a>:<str:b>",
    "<slug:a>_<uuid:b>",
    "<uuid:a>_<slug:b>",
    "<uuid:a><uuid:b>",
]


def share_a_name(text: str) -> bool:
    """Whether two different rows of values make one name."""
    template = parse(text.replace("query.", ""))
    placeholders = list(template.placeholders)
    seen: dict[str, tuple[Any, ...]] = {}
    for row in itertools.product(*(VALUES[one.converter or ""] for one in placeholders)):
        arguments = dict(zip((one.source for one in placeholders), row, strict=True))
        if seen.setdefault(next(iter(template.names(arguments))), row) != row:
            return True
    return False


@pytest.mark.attack("A41")
@pytest.mark.parametrize(("text", "line"), JOINED.items())
def test_what_runs_together_is_told_with_the_line_to_write(text: str, line: str | None) -> None:
    assert share_a_name(text)
    [problem] = ambiguities([parse(text)])
    assert "run together" in problem
    assert problem.endswith(f"Write {line!r}." if line else "Write 'slug:' or 'int:', and ':' between.")


@pytest.mark.parametrize("text", APART)
def test_what_stands_apart_is_not(text: str) -> None:
    assert not share_a_name(text)
    assert list(ambiguities([parse(text)])) == []


def test_a_number_of_a_route_is_not_negative() -> None:
    assert list(ambiguities([parse("<slug:a>-<int:b>")])) == []


@pytest.mark.attack("A41")
def test_the_check_of_django_warns_of_guards_and_of_rules(settings: Any) -> None:
    def view(request: Any, a: str, b: str) -> None: ...

    class Urls:
        urlpatterns = [
            path("<slug:a>/<slug:b>", django_distlock.distributed_lock("<slug:a>_<slug:b>")(view)),
            path("rule/<slug:a>/<slug:b>", view, name="rule"),
        ]

    settings.ROOT_URLCONF = Urls
    settings.MIDDLEWARE = [django_distlock.conf.MIDDLEWARE]
    settings.DISTLOCK_RULES = [{"route": "rule", "lock": "<slug:a>-<slug:b>"}]
    found = [str(message.msg) for message in run_checks() if message.id == "distlock.W005"]
    assert [one.rpartition("Write ")[2] for one in found] == ["'<slug:a>:<slug:b>'."] * 2


@pytest.mark.attack("A41")
def test_flask_logs_it_at_the_first_request(caplog: pytest.LogCaptureFixture) -> None:
    app = Flask(__name__)
    app.config["DISTLOCK"] = "memory://joined"
    flask_distlock.DistLock(app)

    @app.post("/<a>/<b>")
    @flask_distlock.distributed_lock("<slug:a>_<slug:b>")
    def view(a: str, b: str) -> str:
        return "sold"

    with caplog.at_level(logging.WARNING, "distlock"):
        for _ in range(2):
            assert app.test_client().post("/x/y").data == b"sold"
    [line] = [record.getMessage() for record in caplog.records if "run together" in record.getMessage()]
    assert line.endswith("Write '<slug:a>:<slug:b>'.")
