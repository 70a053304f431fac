"""The admin's page of locks in the hands of who means harm, and on a bad day."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.urls import reverse

from distlock import Grant
from django_distlock import locks
from django_distlock.models import Lock

LogIn = Callable[..., Client]
LIST = "/admin/distlock/lock/"
ONE = f"{LIST}default_3Aproduct_5F1/change/"
BREAK = f"{LIST}default_3Aproduct_5F1/break/"
BOTH = ("view_lock", "break_lock")


def take(name: str) -> Grant:
    grant = locks.lock(name).acquire(timeout=0)
    assert grant is not None
    return grant


def token_of(page: str) -> str:
    # The button of the logout has one, too.
    token: str = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[-1]
    return token


@pytest.fixture
def closed_port() -> Iterator[int]:
    """One that nobody answers at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.attack("A32")
def test_a_form_of_another_site_breaks_nothing(log_in: LogIn) -> None:
    client = log_in(*BOTH)
    client.handler.enforce_csrf_checks = True
    grant = take("product_1")
    hold = {"hold": grant.fence.number}
    assert client.post(BREAK, hold).status_code == 403
    assert client.post(BREAK, {**hold, "csrfmiddlewaretoken": "a" * 64}).status_code == 403
    grant.check()
    page = client.get(BREAK, hold)
    assert page["X-Frame-Options"] == "DENY"
    token = token_of(page.content.decode())
    assert client.post(BREAK, {**hold, "csrfmiddlewaretoken": token}).status_code == 302
    assert grant.lost


@pytest.mark.attack("A32", control=True)
def test_where_django_checks_no_token_a_form_of_another_site_breaks_the_lock(log_in: LogIn) -> None:
    client = log_in(*BOTH)
    client.handler.enforce_csrf_checks = False
    grant = take("product_1")
    assert (
        client.post(BREAK, {"hold": grant.fence.number}, HTTP_ORIGIN="https://other.example").status_code
        == 302
    )
    assert grant.lost


def test_a_second_click_breaks_nothing_more(log_in: LogIn) -> None:
    from django.contrib.admin.models import LogEntry

    client = log_in(*BOTH)
    hold = {"hold": take("product_1").fence.number}
    assert b"was broken" in client.post(BREAK, hold, follow=True).content
    locks["default"].close()
    later = take("product_1")
    assert b"Nothing was broken" in client.post(BREAK, hold, follow=True).content
    later.check()
    assert LogEntry.objects.count() == 1


def test_a_link_to_a_lock_leads_there_through_the_login(site: None) -> None:
    answer = Client().get(f"{BREAK}?hold=7")
    assert answer["Location"] == f"/admin/login/?next={quote(f'{BREAK}?hold=7')}"


@pytest.mark.parametrize("hold", ["", "-", "1.", "1.5.1", "\x00", "1 OR 1"])
def test_a_number_that_is_none_is_not_found(hold: str, log_in: LogIn) -> None:
    client = log_in(*BOTH)
    assert client.get(BREAK, {"hold": hold}).status_code == 404
    assert client.post(BREAK, {"hold": hold}).status_code == 404


@pytest.mark.parametrize(
    "name", ["a/change/", "a/../b", "..", "100 %", "%2F", "_3A", "a:b", "ж_☃_商品", " ", "x" * 255, "_"]
)
def test_a_page_of_a_name_is_that_of_no_other(name: str, log_in: LogIn) -> None:
    client = log_in(*BOTH)
    grant = take(name)
    listed = client.get(LIST, {"q": name}).content.decode()
    (url,) = re.findall(rf'href="({LIST}[^"]+/change/)">Look at', listed)
    page = client.get(url)
    assert page.status_code == 200
    (question,) = re.findall(r'href="([^"]+/break/\?hold=[^"]+)"', page.content.decode())
    client.post(question, {"hold": grant.fence.number})
    assert grant.lost


@pytest.mark.parametrize("name", ["\x00", "a\nb", "x" * 256])
def test_what_can_be_no_name_is_told_so(name: str, log_in: LogIn) -> None:
    client = log_in(*BOTH)
    assert client.get(LIST, {"q": name}).status_code == 200
    url = reverse("admin:distlock_lock_change", args=[Lock(id=f"default:{name}").pk.replace("\n", "_0A")])
    answer = client.get(url)
    assert answer.status_code == 200
    assert "errornote" in answer.content.decode()


@pytest.mark.parametrize(
    ("location", "said"),
    [("redis://:secret@127.0.0.1:{port}/0", "127.0.0.1"), ("nonsense://here", "nonsense")],
)
def test_a_lock_service_that_is_away_is_a_sentence_and_no_error(
    location: str, said: str, log_in: LogIn, settings: Any, closed_port: int
) -> None:
    client = log_in(*BOTH)
    settings.DISTLOCK = {
        "default": {"LOCATION": location.format(port=closed_port)},
        "other": {"LOCATION": "memory://other"},
    }
    for url in (LIST, ONE, f"{BREAK}?hold=1"):
        answer = client.get(url)
        assert answer.status_code == 200
        page = answer.content.decode()
        assert 'class="errornote"' in page
        assert said in page
        assert "secret" not in page
    answer = client.post(BREAK, {"hold": 1}, follow=True)
    assert answer.status_code == 200
    assert said in answer.content.decode()
    # The others are there.
    assert "No lock has been held" in client.get(LIST, {"alias": "other"}).content.decode()


@pytest.mark.attack("A34")
def test_an_alias_is_text_as_a_name_is(log_in: LogIn, settings: Any) -> None:
    client = log_in(*BOTH)
    settings.DISTLOCK = {
        "default": {"LOCATION": "memory://one"},
        "a/b:%<b>": {"LOCATION": "memory://two"},
    }
    page = client.get(LIST, {"q": "product_1", "alias": "a/b:%<b>"}).content.decode()
    assert "<b>" not in page
    (url,) = re.findall(rf'href="({LIST}[^"]+/change/)">Look at', page)
    grant = locks["a/b:%<b>"].lock("product_1").acquire(timeout=0)
    assert grant is not None
    seen = client.get(url).content.decode()
    assert "<b>" not in seen
    assert f"{grant.fence.epoch}:{grant.fence.number}" in seen
    assert client.get(LIST, {"alias": "<b>"}).status_code == 404


def test_a_site_puts_its_own_words_around_a_page(log_in: LogIn, settings: Any, tmp_path: Path) -> None:
    own = tmp_path / "admin/distlock/lock/change_list.html"
    own.parent.mkdir(parents=True)
    own.write_text(
        '{% extends "admin/distlock/lock/base.html" %}{% block content %}Ask Ann. {{ content }}{% endblock %}'
    )
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    client = log_in(*BOTH)
    page = client.get(LIST).content.decode()
    assert "Ask Ann." in page
    assert '<form class="distlock-search"' in page
    assert "Ask Ann." not in client.get(ONE).content.decode()


def test_figures_of_a_hold_are_not_written_as_sums_of_money(log_in: LogIn, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    client = log_in(*BOTH)
    locks["default"].close()
    for _ in range(20):
        # Each hold reserves a block of numbers.
        with locks.lock("product_1") as grant:
            number = grant.fence.number
        locks["default"].close()
    take("product_1")
    assert number > 999
    page = client.get(ONE).content.decode()
    (shown,) = re.findall(r"<dd>1:([^<]+)</dd>", page)
    assert int(shown) > number
