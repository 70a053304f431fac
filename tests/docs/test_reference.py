"""The reference is complete: what a user may write, or be told, has its row."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from sqlalchemy import MetaData

import distlock
import distlock.metrics
import distlock.operate
import distlock.testing
import django_distlock
import django_distlock.signals
import flask_distlock
import flask_distlock.signals
from distlock import Fence
from distlock.backends.inspectable import Finding
from distlock.cli.output import listed_json, state_json
from distlock.cli.site import PREFIX, URL
from distlock.errors import LockError
from distlock.operate import Listed, LockState, Party
from distlock.web.answers import answer_for
from distlock.web.guard_options import GUARD_KEYWORDS, ON_CONTENDED
from distlock.web.settings.aliases import AliasSettings
from flask_distlock.fence import fence_table
from tests.backend_class import EXAMPLES, backend_class
from tests.web.quickstart import code_blocks

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"
PUBLIC = [distlock, django_distlock, flask_distlock, distlock.metrics, distlock.operate, distlock.testing]


def rows(page: str) -> set[str]:
    """What stands as code in the first column of the tables of *page*."""
    text = (REFERENCE / page).read_text("utf-8")
    first = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {word for cell in first for word in re.findall(r"`([^`]+)`", cell)}


def source(*packages: str) -> str:
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    return "\n".join(path.read_text("utf-8") for path in files)


def test_each_setting_has_a_row() -> None:
    keys = {field.name.upper() for field in fields(AliasSettings)} - {"ALIAS"}
    beside = set(
        re.findall(r"\bDISTLOCK_[A-Z_]+[A-Z]\b", source("distlock/web", "django_distlock", "flask_distlock"))
    )
    assert keys | beside == {row for row in rows("settings.md") if row.isupper()}


def test_each_argument_of_the_decorator_has_a_row() -> None:
    assert rows("decorator.md") == {*GUARD_KEYWORDS, *(f'"{word}"' for word in ON_CONTENDED)}


def test_each_error_has_a_row() -> None:
    errors = {name for name in distlock.__all__ if isinstance(getattr(distlock, name), type)}
    assert rows("errors.md") == {
        name for name in errors if issubclass(getattr(distlock, name), LockError) and name != "LockError"
    }


def test_each_code_of_an_answer_has_a_row() -> None:
    text = (REFERENCE / "answers.md").read_text("utf-8")
    # The others are signals, and the page of locks.
    code = r'"(lock_(?!lost"|acquired"|refused"|released"|release_requested"|url")\w+|lock_lost)"'
    codes = set(re.findall(code, source("distlock/web")))
    assert codes == set(re.findall(r"^\| .* \| `(lock_\w+)` \|$", text, re.MULTILINE))


def test_the_body_of_an_answer_is_as_shown() -> None:
    (shown,) = code_blocks((REFERENCE / "answers.md").read_text("utf-8"), "json")
    answer = answer_for(distlock.LockTimeout("x"), contended_status=423, debug=False)
    assert answer is not None
    assert json.loads(shown) == answer.problem()


def test_each_check_has_a_row() -> None:
    assert rows("checks.md") == set(re.findall(r'"(distlock\.[EWI]\d{3})"', source("django_distlock")))


def test_each_signal_has_a_row() -> None:
    for module in (django_distlock.signals, flask_distlock.signals):
        assert rows("signals.md") == {name for name in vars(module) if re.match("(lock|fence)_", name)}


def table(page: str, heading: str) -> set[str]:
    """What stands as code in the first column of the one table whose head begins with *heading*."""
    text = (REFERENCE / page).read_text("utf-8")
    (body,) = re.findall(rf"^\| {re.escape(heading)} \|.*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", "".join(line.split("|")[1] for line in body.splitlines())))


def keywords(called: Callable[..., object]) -> set[str]:
    return {one.name for one in inspect.signature(called).parameters.values() if one.kind is one.KEYWORD_ONLY}


def test_each_argument_of_connect_has_a_row() -> None:
    # backend= and the options of backends stand below the table.
    assert table("core.md", "argument") == keywords(distlock.connect) - {"backend"}


# Those of Sentinel are those of one server.
@pytest.mark.parametrize(
    "backend", ["mysql", "postgresql", "redis", "redis+cluster", "redlock", "zookeeper", "file"]
)
def test_each_option_of_a_backend_has_a_row(backend: str) -> None:
    page = f"backends/{backend.rpartition('+')[2]}.md"
    assert table(page, "option") == keywords(backend_class(EXAMPLES[backend]))


def test_each_public_name_is_in_the_api() -> None:
    page = (REFERENCE / "api.md").read_text("utf-8")
    for module in PUBLIC:
        # Those of distlock.operate are the methods of `Locks` of that name, for code that has a namespace.
        for name in set(module.__all__) - {"KINDS", "__version__", "inspect", "list_locks"}:
            assert re.search(rf":: (?:[\w.]+\.)?{name}\b", page), f"{module.__name__}.{name}"


def test_what_is_written_has_its_rows() -> None:
    party = Party("1")
    state = LockState("product_1", party, Fence(1, 2), 3.0, (party,), 1)
    assert table("stored.md", "`list`") == listed_json(Listed("product_1", party, held=True)).keys()
    assert table("stored.md", "`show`") == state_json(state).keys()
    assert table("stored.md", "`doctor`") == {field.name for field in fields(Finding)}
    assert table("stored.md", "column") == set(fence_table(MetaData()).columns.keys())
    told = set(re.findall(r'"(DISTLOCK_(?:NAME|FENCE))"', source("distlock/cli")))
    assert table("stored.md", "variable") == {URL, PREFIX, *told}
    assert len(told) == 2


def test_the_options_of_sentinel_are_those_of_one_server() -> None:
    sentinel, server = (keywords(backend_class(EXAMPLES[word])) for word in ("redis+sentinel", "redis"))
    assert sentinel == server
    assert table("backends/sentinel.md", "option") <= sentinel
