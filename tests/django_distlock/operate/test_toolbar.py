"""The panel of django-debug-toolbar, as its page shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from distlock.testing import lose
from django_distlock import distributed_lock, locks
from django_distlock.clients.observed import watching


@distributed_lock("product_<id>", fence=True)
def guarded(request: HttpRequest, id: int) -> HttpResponse:
    list(Group.objects.all())
    return HttpResponse("<body>sold</body>")


def in_code(request: HttpRequest) -> HttpResponse:
    list(Permission.objects.all())
    with locks.lock("cart_<b>", "cart_2") as grant:
        list(Group.objects.all())
        grant.check()
    list(User.objects.all())
    with locks.lock("printer", in_transaction=True):
        pass
    assert locks.lock("taken").acquire(timeout=0) is None
    return HttpResponse("<body>sold</body>")


def lost(request: HttpRequest) -> HttpResponse:
    grant = locks.lock("cart_2").acquire()
    assert grant is not None
    assert grant.lost
    grant.release()
    return HttpResponse("<body>sold</body>")


@pytest.fixture
def client(site: None, settings: Any) -> Iterator[Client]:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "debug_toolbar"]
    settings.MIDDLEWARE = ["debug_toolbar.middleware.DebugToolbarMiddleware", *settings.MIDDLEWARE]
    settings.DEBUG_TOOLBAR_CONFIG = {"SHOW_TOOLBAR_CALLBACK": lambda request: True}
    settings.DEBUG_TOOLBAR_PANELS = ["django_distlock.operate.toolbar.LocksPanel"]

    class Urls:
        urlpatterns = [
            path("__debug__/", include("debug_toolbar.urls", namespace="djdt")),
            path("products/<int:id>/reduce", guarded),
            path("in-code", in_code),
            path("lost", lost),
        ]

    settings.ROOT_URLCONF = Urls
    yield Client()
    assert watching.get() is None


def panel(client: Client, url: str) -> list[list[str]]:
    """The cells of the panel's rows, without their tags."""
    (request_id,) = re.findall(r'data-request-id="([^"]+)"', client.get(url).content.decode())
    answer = client.get("/__debug__/render_panel/", {"request_id": request_id, "panel_id": "LocksPanel"})
    rows = re.findall(r"<tr>(.*?)</tr>", answer.json()["content"], re.DOTALL)
    return [
        [
            re.sub(r"<[^>]*>", "", cell).replace("&nbsp;", " ").strip()
            for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)
        ]
        for row in rows
        if "<td>" in row
    ]


def of(rows: list[list[str]], text: str) -> list[str]:
    (row,) = [row for row in rows if any(text in cell for cell in row)]
    return row


def test_a_guard_is_shown_with_its_fence_and_the_statements_under_it(client: Client) -> None:
    rows = panel(client, "/products/1/reduce")
    names, waited, held, fence, _, alias = of(rows, "guarded")
    assert (names, alias) == ("product_1", "default")
    assert re.fullmatch(r"\d+:\d+", fence)
    assert waited.endswith(" ms")
    assert float(held.removesuffix(" ms")) > 0
    for statement in ("distlock_fence", "FROM &quot;auth_group&quot;"):
        under = [row for row in rows if statement in row[-1]]
        assert under
        assert all(row[2:4] == ["product_1", "inside"] for row in under)


def test_blocks_are_shown_and_what_was_read_outside_of_them(client: Client) -> None:
    with locks.lock("taken"):
        rows = panel(client, "/in-code")
    for before_or_after in ("auth_permission", "auth_user"):
        assert of(rows, f"FROM &quot;{before_or_after}&quot;")[2] == "outside"
    assert of(rows, "FROM &quot;auth_group&quot;")[2] == "cart_2, cart_&lt;b&gt;"
    _, _, held, fence, where, alias = next(row for row in rows if row[0].startswith("cart_2"))
    assert held.endswith(" ms")
    assert len(fence.split(", ")) == 2
    assert where.startswith("in_code (test_toolbar.py:")
    assert alias == "default"
    assert of(rows, "printer")[2].endswith(" ms")
    assert of(rows, "taken")[0] == "takenIt stayed taken."
    assert of(rows, "taken")[2] == "never"


def test_a_lock_that_is_lost_says_so(client: Client) -> None:
    with lose("cart_2"):
        rows = panel(client, "/lost")
    assert "the test plays lose()" in of(rows, "cart_2")[0]


def test_without_the_toolbar_the_command_to_run_is_named() -> None:
    code = "import sys; sys.modules['debug_toolbar.panels'] = None; import django_distlock.operate.toolbar"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Run: pip install django-debug-toolbar" in done.stderr
