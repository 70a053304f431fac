"""The page of locks of a Flask app in the hands of who means harm, and on a bad day."""

from __future__ import annotations

import html
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, abort
from flask.testing import FlaskClient

from flask_distlock import DistLock
from flask_distlock.operate import locks_blueprint
from tests.flask_distlock.operate.test_blueprint import FROM_THE_PAGE, seen, take

Open = Callable[..., FlaskClient]


@pytest.fixture
def open_page(make_app: Callable[..., Flask]) -> Open:
    def open_page(setting: object = "memory://hostile", **words: Any) -> FlaskClient:
        app = make_app(TESTING=False, PROPAGATE_EXCEPTIONS=False, DISTLOCK=setting)
        app.register_blueprint(locks_blueprint(**{"allowed": lambda: True, **words}))
        return app.test_client()

    return open_page


@pytest.fixture
def closed_port() -> Iterator[int]:
    """One that nobody answers at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.attack("A31")
@pytest.mark.parametrize("word", ["allowed", "may_break"])
@pytest.mark.parametrize("status", [401, 500])
def test_an_access_check_that_raises_lets_nobody_in(
    word: str, status: int, open_page: Open, locks: DistLock
) -> None:
    def check() -> bool:
        if status == 401:
            abort(401)
        raise LookupError("the users' database is away")

    client = open_page(**{word: check})
    grant = take(locks, client, "product_1")
    urls = ["/locks/", "/locks/lock?alias=default&name=product_1"] if word == "allowed" else []
    answers = [client.get(url) for url in urls]
    answers.append(client.get("/locks/break", query_string=seen(grant)))
    answers.append(client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE))
    assert {answer.status_code for answer in answers} == {status}
    assert all("product_1" not in answer.text for answer in answers)
    grant.check()


def test_a_person_without_a_name_breaks_nothing(open_page: Open, locks: DistLock) -> None:
    def user() -> str:
        raise LookupError("nobody is logged in")

    client = open_page(user=user)
    grant = take(locks, client, "product_1")
    assert client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE).status_code == 500
    grant.check()


def test_a_second_click_breaks_nothing_more(open_page: Open, locks: DistLock) -> None:
    client = open_page()
    first = take(locks, client, "product_1")
    answer = client.post("/locks/break", data=seen(first), headers=FROM_THE_PAGE)
    assert "The lock was broken." in client.get(answer.location).text
    with client.application.app_context():
        locks["default"].close()
    later = take(locks, client, "product_1")
    answer = client.post("/locks/break", data=seen(first), headers=FROM_THE_PAGE)
    assert "Nothing was broken" in client.get(answer.location).text
    later.check()


@pytest.mark.parametrize(
    "name", ["a/change/", "..", "100 %", "%2F", "a&alias=b", "a#b", "ж_☃_商品", " ", "x" * 255]
)
def test_a_page_of_a_name_is_that_of_no_other(name: str, open_page: Open, locks: DistLock) -> None:
    client = open_page()
    grant = take(locks, client, name)
    listed = client.get("/locks/", query_string={"q": name}).text
    (url,) = re.findall(r'href="(/locks/lock[^"]+)">Look at', listed)
    (question,) = re.findall(r'href="(/locks/break[^"]+)"', client.get(html.unescape(url)).text)
    form = client.get(html.unescape(question)).text
    fields = {
        field: html.unescape(value)
        for field, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    }
    assert client.post("/locks/break", data=fields, headers=FROM_THE_PAGE).status_code == 303
    assert grant.lost


@pytest.mark.parametrize("name", ["\x00", "a\nb", "x" * 256])
def test_what_can_be_no_name_is_told_so(name: str, open_page: Open) -> None:
    client = open_page()
    assert client.get("/locks/", query_string={"q": name}).status_code == 200
    answer = client.get("/locks/lock", query_string={"alias": "default", "name": name})
    assert answer.status_code == 200
    assert "errornote" in answer.text


def test_a_lock_service_that_is_away_is_a_sentence_and_no_error(open_page: Open, closed_port: int) -> None:
    away = {"LOCATION": f"redis://:secret@127.0.0.1:{closed_port}/0"}
    client = open_page({"default": {"LOCATION": "memory://well"}, "away": away})
    one = {"alias": "away", "name": "product_1", "hold": 1}
    answers = [client.get(f"/locks/{page}", query_string=one) for page in ("", "lock", "break")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    answers.append(client.post("/locks/break", data=one, headers=FROM_THE_PAGE))
    assert answers[-1].status_code == 503
    for answer in answers:
        assert 'class="errornote"' in answer.text
        assert "127.0.0.1" in answer.text
        assert "secret" not in answer.text
    assert "No lock has been held" in client.get("/locks/").text


def test_an_alias_is_text_as_a_name_is(open_page: Open, locks: DistLock) -> None:
    alias = "a/b:%<b>"
    client = open_page({"default": {"LOCATION": "memory://one"}, alias: {"LOCATION": "memory://two"}})
    with client.application.app_context():
        grant = locks[alias].lock("product_1").acquire(timeout=0)
    assert grant is not None
    page = client.get("/locks/", query_string={"alias": alias, "q": "product_1"}).text
    (url,) = re.findall(r'href="(/locks/lock[^"]+)">Look at', page)
    one = client.get(html.unescape(url)).text
    assert f"{grant.fence.epoch}:{grant.fence.number}" in one
    nowhere = client.get("/locks/", query_string={"alias": "<b>"})
    assert nowhere.status_code == 404
    assert all("<b>" not in text for text in (page, one, nowhere.text))


def test_the_form_has_the_token_of_flask_wtf_where_a_site_has_it(open_page: Open, locks: DistLock) -> None:
    client = open_page()
    grant = take(locks, client, "product_1")
    assert "csrf_token" not in client.get("/locks/break", query_string=seen(grant)).text
    client.application.jinja_env.globals["csrf_token"] = lambda: "to&ken"
    page = client.get("/locks/break", query_string=seen(grant)).text
    assert '<input type="hidden" name="csrf_token" value="to&amp;ken">' in page
