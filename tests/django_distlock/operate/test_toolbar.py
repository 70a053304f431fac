"""The panel of django-debug-toolbar, as its page shows it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import include, path

from distlock.testing import lose
from django_distlock import distributed_lock, locks
from django_distlock.clients.client import listener_maker
from django_distlock.operate import toolbar as toolbar_module
from tests.demo_shop.accessibility import grave_faults
from tests.demo_shop.browser import Page


@distributed_lock("product_<id>", fence=True)
def guarded(request: HttpRequest, id: int) -> HttpResponse:
    list(Group.objects.all())
    return HttpResponse("<body>sold</body>")


PHONE = '<meta name="viewport" content="width=device-width">'


def in_code(request: HttpRequest) -> HttpResponse:
    list(Permission.objects.all())
    with locks.lock("cart_<b>", "cart_2") as grant:
        list(Group.objects.all())
        grant.check()
    list(User.objects.all())
    with locks.lock("printer", in_transaction=True):
        pass
    assert locks.lock("taken").acquire(timeout=0) is None
    return HttpResponse(f"<head>{PHONE}</head><body>sold</body>")


def of_several(request: HttpRequest) -> HttpResponse:
    with locks.semaphore("gateway", limit=10), locks.read_lock("catalogue"):
        list(Group.objects.all())
    return HttpResponse("<body>paid</body>")


def lost(request: HttpRequest) -> HttpResponse:
    grant = locks.lock("cart_2").acquire()
    assert grant is not None
    assert grant.lost
    grant.release()
    return HttpResponse("<body>sold</body>")


async def in_async(request: HttpRequest) -> HttpResponse:
    async with locks.lock("product_1"):
        await sync_to_async(lambda: list(Group.objects.all()))()
    return HttpResponse("<body>sold</body>")


def watched_twice(request: HttpRequest) -> HttpResponse:
    with connection.execute_wrapper(toolbar_module._execute):
        list(Group.objects.all())
    return HttpResponse("<body>sold</body>")


def in_a_thread(request: HttpRequest) -> HttpResponse:
    """Once with the context of the request, and once without."""

    def read() -> None:
        list(Group.objects.all())
        connection.close()

    for target in (partial(copy_context().run, read), read):
        thread = Thread(target=target, name="a helper")
        thread.start()
        thread.join()
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
            path("of-several", of_several),
            path("in-async", in_async),
            path("watched-twice", watched_twice),
            path("in-a-thread", in_a_thread),
        ]

    settings.ROOT_URLCONF = Urls
    yield Client()
    assert listener_maker.get() is None


def panel(client: Client, url: str) -> list[list[str]]:
    """The cells of the panel's rows, without their tags."""
    return rows_of(shown(client, client.get(url).content))


def shown(client: Client, page: bytes) -> str:
    """The panel of the request that *page* answers."""
    (request_id,) = re.findall(r'data-request-id="([^"]+)"', page.decode())
    answer = client.get("/__debug__/render_panel/", {"request_id": request_id, "panel_id": "LocksPanel"})
    content: str = answer.json()["content"]
    return content


def rows_of(content: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", content, re.DOTALL)
    return [
        [
            re.sub(r"<[^>]*>", "", cell).replace("&nbsp;", " ").strip()
            for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)
        ]
        for row in rows
        if "<td>" in row
    ]


def test_permits_and_reads_are_named_so(client: Client) -> None:
    permit, read, statement = panel(client, "/of-several")
    assert permit[0] == "gateway (permit)"
    assert permit[2].endswith("ms")
    assert permit[3] == "", "permits have no fence"
    assert read[0] == "catalogue (read)"
    assert read[3]
    assert statement[1] == "gateway, catalogue"


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
        under = [row for row in rows if statement in row[0]]
        assert under
        assert all(row[1:3] == ["product_1", "inside"] for row in under)


def test_blocks_are_shown_and_what_was_read_outside_of_them(client: Client) -> None:
    with locks.lock("taken"):
        rows = panel(client, "/in-code")
    for before_or_after in ("auth_permission", "auth_user"):
        assert of(rows, f"FROM &quot;{before_or_after}&quot;")[1] == "outside"
    assert of(rows, "FROM &quot;auth_group&quot;")[1] == "cart_2, cart_&lt;b&gt;"
    _, _, held, fence, where, alias = next(row for row in rows if row[0].startswith("cart_2"))
    assert held.endswith(" ms")
    assert len(fence.split(", ")) == 2
    # The very line, and not that of the function.
    (line,) = re.findall(r"^in_code \(test_toolbar\.py:(\d+)\)$", where)
    assert 'locks.lock("cart_<b>"' in Path(__file__).read_text().splitlines()[int(line) - 1]
    assert alias == "default"
    assert of(rows, "printer")[2].endswith(" ms")
    assert of(rows, "taken")[0] == "takenIt stayed taken."
    assert of(rows, "taken")[2] == "never"


def test_a_lock_that_is_lost_says_so(client: Client) -> None:
    with lose("cart_2"):
        rows = panel(client, "/lost")
    assert "the test plays lose()" in of(rows, "cart_2")[0]


def test_what_an_async_view_reads_in_a_thread_is_under_its_lock(client: Client) -> None:
    answer = asyncio.run(AsyncClient().get("/in-async"))
    content = shown(client, answer.content)
    statement, under, *_ = of(rows_of(content), "auth_group")
    assert under == "product_1"
    assert "in the thread " in statement
    assert "1 of 1 was sent from another thread" in content


def test_statements_of_other_threads_say_so_or_are_counted(client: Client) -> None:
    content = shown(client, client.get("/in-a-thread").content)
    (row,) = rows_of(content)
    assert row[0].endswith("in the thread a helper")
    assert row[1] == "outside"
    assert "Meanwhile 1 statement came from threads of which the request is not known" in content
    assert "Meanwhile" not in shown(client, client.get("/products/1/reduce").content)


def test_a_statement_that_is_seen_twice_is_shown_once(client: Client) -> None:
    """In a batch: the connection goes round, and each thread has one of its own besides."""
    assert len(panel(client, "/watched-twice")) == 1


def test_in_a_browser_the_panel_has_no_grave_fault(
    client: Client, served: str, browser: Page, tmp_path: Path
) -> None:
    root = "document.querySelector('#djDebugRoot').shadowRoot"
    # It asks once, when it is opened, which of the two a person prefers.
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        with locks.lock("taken"):
            browser.open(f"{served}/in-code?{scheme}")
        browser.wait_for(f"{root}.querySelector('#djDebugToolbar:not(.djdt-hidden)') !== null")
        assert browser.evaluate(f"{root}.querySelector('#djDebug').dataset.theme") == scheme
        browser.evaluate(f"{root}.querySelector('a.LocksPanel').click()")
        browser.wait_for(f"{root}.querySelectorAll('#LocksPanel table').length === 2")
        for width in (1280, 390):
            browser.resize(width, 900)
            browser.photograph(tmp_path / f"panel-{scheme}-{width}.png")
            assert grave_faults(browser, f"{root}.querySelector('#LocksPanel')") == []


def test_without_the_toolbar_the_command_to_run_is_named() -> None:
    code = "import sys; sys.modules['debug_toolbar.panels'] = None; import django_distlock.operate.toolbar"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Run: pip install django-debug-toolbar" in done.stderr
