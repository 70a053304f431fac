"""What a request has loaded into ``request.user`` before its lock decides nothing under it.

A site with users of its own runs in a process of its own: see site.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Databases

HERE = Path(__file__).parent
NAMES = re.findall(r'^    "(.+?)": Arrangement\(', (HERE / "spending.py").read_text("utf-8"), re.MULTILINE)
CASES = [
    case
    for chapter in sorted(HERE.glob("cases*.py"))
    for case in re.findall(r"^def (case_\w+)", chapter.read_text("utf-8"), re.MULTILINE)
]
KINDS = ("sqlite", "postgresql", "mariadb")

Site = Callable[..., list[str]]


@pytest.fixture(scope="module")
def site(databases: Databases) -> Site:
    """Run the site on a database of that kind. Gives the lines that it has printed."""

    @cache
    def run(kind: str, *arguments: str) -> list[str]:
        url = databases(kind, "fresh")
        command = [sys.executable, "-m", "tests.django_distlock.fresh.site", url, *arguments]
        done = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        # The requests that failed: pytest shows it with a test that fails.
        sys.stderr.write(done.stderr)
        return done.stdout.splitlines()

    return run


@pytest.mark.attack("A40")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_as_many_coins_are_spent_as_there_are(site: Site, kind: str, name: str) -> None:
    outcomes: dict[str, Any] = {one["name"]: one for one in map(json.loads, site(kind, "spend", *NAMES))}
    assert outcomes[name] == {"name": name, "spent": 5, "refused": 11, "left": [0, 0]}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_case(site: Site, kind: str, case: str) -> None:
    assert json.loads(site(kind, "cases")[0])[case] == "passed"


WITHOUT_USERS = """
import django
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
from django.urls import path

settings.configure(
    DEBUG=True,
    DISTLOCK={"default": {"LOCATION": "memory://"}},
    INSTALLED_APPS=["django_distlock"],
    MIDDLEWARE=["__main__.set_user"],
    ROOT_URLCONF="__main__",
)
django.setup()

from django_distlock import distributed_lock


def set_user(get_response):
    def middleware(request):
        request.user = object()
        return get_response(request)

    return middleware


@distributed_lock("bank")
def view(request):
    return HttpResponse("done")


urlpatterns = [path("spend", view)]
print(Client().post("/spend").content)
"""


def test_a_site_without_users_and_sessions() -> None:
    command = [sys.executable, "-c", WITHOUT_USERS]
    done = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=100)
    assert done.stdout == "b'done'\n", done.stderr
