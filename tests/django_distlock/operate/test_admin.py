"""The admin's page of locks, as the staff of a site uses it."""

from __future__ import annotations

import html
import io
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from distlock import Grant
from django_distlock import locks
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page

LogIn = Callable[..., Client]
LIST = "/admin/distlock/lock/"
ONE = f"{LIST}default_3Aproduct_5F1/change/"
BREAK = f"{LIST}default_3Aproduct_5F1/break/"
PATIENCE = 30.0


def page_of(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    return answer.content.decode()


def links(page: str, pattern: str) -> list[str]:
    return [html.unescape(url) for url in re.findall(rf'href="({pattern})"', page)]


def take(*names: str) -> Grant:
    grant = locks.lock(*names).acquire(timeout=0)
    assert grant is not None
    return grant


def until_listed(name: str) -> None:
    """A process tells of what has lasted for a moment."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not any(one.name == name for one in locks["default"].list()):
        assert time.monotonic() < deadline
        pause.wait(0.05)


def log_entries() -> list[Any]:
    from django.contrib.admin.models import LogEntry

    return list(LogEntry.objects.all())


@pytest.mark.attack("A31")
def test_without_a_permission_nothing_is_seen_and_nothing_broken(log_in: LogIn) -> None:
    client = log_in("break_lock")
    grant = take("product_1")
    assert Client().get(LIST).headers["Location"].startswith("/admin/login/")
    assert LIST not in client.get("/admin/").content.decode()
    for url in (LIST, ONE, BREAK, f"{LIST}locks.js"):
        assert client.get(url).status_code == 403
    assert client.post(BREAK, {"hold": grant.fence.number}).status_code == 403
    grant.check()


def test_to_see_a_lock_is_no_permission_to_break_it(log_in: LogIn) -> None:
    client = log_in("view_lock")
    grant = take("product_1")
    assert f'href="{LIST}"' in page_of(client, "/admin/")
    page = page_of(client, ONE)
    assert "test_admin.py" in page, "where it is held"
    assert BREAK not in page
    for answer in (client.get(BREAK), client.post(BREAK, {"hold": grant.fence.number})):
        assert answer.status_code == 403
    grant.check()


@pytest.mark.attack("A32")
def test_a_lock_is_broken_after_a_question_and_the_log_says_by_whom(
    log_in: LogIn, caplog: pytest.LogCaptureFixture
) -> None:
    client = log_in("view_lock", "break_lock")
    grant = take("product_1")
    (question,) = links(page_of(client, ONE), rf"{BREAK}\?hold=\d+")
    assert "Yes, break it" in page_of(client, question)
    grant.check()
    answer = client.post(question, {"hold": grant.fence.number}, follow=True)
    assert "The lock product_1 was broken. It was held by" in answer.content.decode()
    assert "Nobody holds it" in answer.content.decode()
    assert grant.lost
    (entry,) = log_entries()
    assert (entry.user.username, entry.object_repr) == ("ann", "product_1 (default)")
    assert entry.change_message.startswith("Broke the lock. It was held by")
    assert entry.get_admin_url() == ONE
    assert "was broken by ann in the admin" in caplog.text


def test_a_lock_is_asked_for_with_the_permission_to_break_it(
    log_in: LogIn, caplog: pytest.LogCaptureFixture
) -> None:
    client, ask = log_in("view_lock"), f"{LIST}default_3Aproduct_5F1/ask/"
    grant = take("product_1")
    assert "Ask for it back" not in page_of(client, ONE)
    assert client.post(ask).status_code == 403
    assert not grant.release_requested
    user = User.objects.get(username="ann")
    user.user_permissions.add(Permission.objects.get(codename="break_lock"))
    assert "Ask for it back" in page_of(client, ONE)
    assert client.get(ask).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    assert strict.post(ask).status_code == 403, "it has no token"
    assert not grant.release_requested
    said = client.post(ask, follow=True).content.decode()
    assert "The holder of the lock product_1 was asked to give it back" in said
    assert grant.release_requested
    assert not grant.lost
    assert [entry.change_message.partition(".")[0] for entry in log_entries()] == ["Asked for the lock"]
    assert "was asked by ann in the admin" in caplog.text
    grant.release()
    assert "Nobody holds the lock product_1." in client.post(ask, follow=True).content.decode()


def test_readers_permits_and_a_latch_are_shown(log_in: LogIn) -> None:
    client = log_in("view_lock", "break_lock")
    latch = locks["default"].latch("import_7", 3)
    latch.make()
    latch.count_down()
    permits = locks.semaphore("gateway", limit=10, permits=3).acquire()
    assert permits is not None
    with locks.read_lock("catalogue"):
        until_listed("gateway")
        page = page_of(client, LIST)
        assert "3 of 10 out, longest: " in page
        assert "1 read, longest: " in page
        (semaphore,) = links(page, f'{LIST}default_3Agateway[^"]*')
        assert semaphore.endswith("?kind=semaphore")
        shown = page_of(client, semaphore)
        assert "<dt>Permits out</dt><dd>3 of 10</dd>" in shown
        one = f"{LIST}default_3Acatalogue/change/"
        assert "<dt>Read by</dt><dd>1 caller</dd>" in page_of(client, one)
    one = f"{LIST}default_3Aimport_5F7/change/?kind=latch"
    assert "<dt>Left</dt><dd>2 of 3</dd>" in page_of(client, one)
    assert client.get(one.replace("latch", "barrier")).status_code == 404
    (question,) = links(shown, rf"{LIST}default_3Agateway/break/[^\"]*")
    assert "more are inside than there are permits" in page_of(client, question)
    hold = question.partition("hold=")[2].partition("&")[0]
    said = client.post(question, {"hold": hold}, follow=True).content.decode()
    assert "The semaphore gateway was broken." in said
    (entry,) = log_entries()
    assert entry.change_message.startswith("Broke the semaphore. It was held by")
    assert permits.lost


def test_what_has_passed_on_since_it_was_seen_is_not_broken(log_in: LogIn) -> None:
    client = log_in("view_lock", "break_lock")
    seen = take("product_1")
    number = seen.fence.number
    seen.release()
    # Of the same process, and not of the same hold: a block of numbers may be used up for it.
    locks["default"].close()
    next_one = take("product_1")
    assert next_one.fence.number != number
    assert "The hold that you saw has ended" in page_of(client, f"{BREAK}?hold={number}")
    answer = client.post(BREAK, {"hold": number}, follow=True)
    assert "Nothing was broken" in answer.content.decode()
    next_one.check()
    assert log_entries() == []
    assert client.post(BREAK, {"hold": "1; DROP"}).status_code == 404
    assert client.post(BREAK).status_code == 404


@pytest.mark.attack("A34")
def test_names_are_text_wherever_they_are_shown(log_in: LogIn) -> None:
    client = log_in("view_lock", "break_lock")
    name = "<script>alert(1)</script>/../%2e'\"&?#\u202e"
    grant = take(name)
    until_listed(name)
    page = page_of(client, f"{LIST}?q=<script")
    # What turns the direction of writing turns the name only.
    assert page.count("<bdi>&lt;script&gt;alert(1)") == 1
    _, one = links(page, f'{LIST}default_3A_3Cscript[^"]*')
    assert "No lock has been held" in page_of(client, f"{LIST}?q=other")
    (question,) = links(page_of(client, one), r"[^\"]*/break/\?hold=\d+")
    answer = client.post(question, {"hold": grant.fence.number}, follow=True)
    assert grant.lost
    for said in (page, page_of(client, one), answer.content.decode(), page_of(client, "/admin/")):
        assert "<script>alert" not in said


def test_a_page_has_two_hundred_locks_at_most_and_says_so(log_in: LogIn) -> None:
    client = log_in("view_lock")
    names = [f"product_{number}" for number in range(201)]
    with locks.lock(*names):
        # The last one in the order in which they are taken: the others have lasted longer.
        until_listed(max(names))
        page = page_of(client, LIST)
        assert "200 of 201 locks" in page
        assert page.count('<th scope="row"><a') == 200
        assert "<p>1 lock.</p>" in page_of(client, f"{LIST}?q=product_200")


def test_a_lock_service_that_shows_nothing_says_what_to_do(log_in: LogIn) -> None:
    client = log_in("view_lock")
    for url in (f"{LIST}?alias=rows", f"{LIST}rows_3Aproduct_5F1/change/"):
        assert "it locks the whole file" in page_of(client, url)
    assert client.get(f"{LIST}?alias=other").status_code == 404
    assert client.get(f"{LIST}other_3Aproduct_5F1/change/").status_code == 404


def test_settings_that_can_not_work_say_so_on_the_page(log_in: LogIn, settings: Any) -> None:
    settings.DISTLOCK = {**settings.DISTLOCK, "other": "redis://localhost:6379/0"}
    assert "DISTLOCK['other'] is a str, not a dict" in html.unescape(page_of(log_in("view_lock"), LIST))


def test_the_page_has_no_table_of_its_own(site: None) -> None:
    """Nothing is to be migrated, and what goes through all tables passes it by."""
    call_command("makemigrations", "distlock", check=True, dry_run=True, verbosity=0)
    out = io.StringIO()
    call_command("dumpdata", "distlock", stdout=out)
    assert out.getvalue().strip() == "[]"
    assert reverse("admin:distlock_lock_changelist") == LIST


def hold_still(browser: Page) -> None:
    """What is about to be clicked moves where the page comes anew with another line above it."""
    browser.wait_for("document.readyState === 'complete'")
    browser.evaluate("document.querySelector('#distlock-refresh').checked = false")


def test_in_a_browser_the_page_follows_the_locks(log_in: LogIn, served: str, browser: Page) -> None:
    client = log_in("view_lock", "break_lock")
    cookie = client.cookies["sessionid"].value
    browser.tell("Network.setCookie", name="sessionid", value=cookie, url=served)
    browser.hasten()
    browser.open(f"{served}{LIST}")
    assert browser.evaluate("!document.querySelector('#distlock-refresh').closest('[hidden]')")
    grant = take("product_1")
    browser.wait_for("document.querySelector('.distlock-table th a')?.innerText === 'product_1'")
    assert faults_everywhere(browser) == []
    browser.open(f"{served}{ONE}")
    assert faults_everywhere(browser) == []
    hold_still(browser)
    browser.click("button.distlock-ask")
    said = "The holder of the lock product_1 was asked to give it back, and may go on"
    browser.wait_for(f"document.body?.innerText.includes({said!r})")
    assert grant.release_requested
    hold_still(browser)
    browser.click("a.distlock-break")
    browser.wait_for("document.querySelector('button.distlock-break') !== null")
    assert faults_everywhere(browser) == []
    browser.click("button.distlock-break")
    browser.wait_for("document.querySelector('#distlock-live')?.innerText.includes('Nobody holds it')")
    assert grant.lost
    # A reload shows the lock, and breaks nothing.
    later = take("product_1")
    browser.tell("Page.reload")
    browser.wait_for("document.querySelector('#distlock-live')?.innerText.includes('Held by')")
    later.check()
