"""The reference is complete: what a user may write, or be told, has its row."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import distlock
import django_distlock.signals
import flask_distlock.signals
from distlock.errors import LockError
from distlock.web.answers import answer_for
from distlock.web.decorator import ON_CONTENDED, WORDS
from distlock.web.settings.aliases import AliasSettings
from tests.web.quickstart import code_blocks

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"


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
    assert rows("decorator.md") == {*WORDS, *(f'"{word}"' for word in ON_CONTENDED)}


def test_each_error_has_a_row() -> None:
    errors = {name for name in distlock.__all__ if isinstance(getattr(distlock, name), type)}
    assert rows("errors.md") == {
        name for name in errors if issubclass(getattr(distlock, name), LockError) and name != "LockError"
    }


def test_each_code_of_an_answer_has_a_row() -> None:
    text = (REFERENCE / "answers.md").read_text("utf-8")
    codes = set(
        re.findall(r'"(lock_(?!lost"|acquired"|refused"|released")\w+|lock_lost)"', source("distlock/web"))
    )
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
