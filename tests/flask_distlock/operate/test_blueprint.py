"""The page of locks of a Flask app: the access check that it needs, and what it shows and breaks."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from flask import Flask, Response, redirect
from flask.testing import FlaskClient
from werkzeug.serving import make_server

from distlock import Grant
from distlock.errors import ConfigurationError
from flask_distlock import DistLock
from flask_distlock.operate import locks_blueprint
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page

FROM_THE_PAGE = {"Sec-Fetch-Site": "same-origin"}
PATIENCE = 30.0


@pytest.fixture
def open_page(make_app: Callable[..., Flask]) -> Callable[..., FlaskClient]:
    """`open_page(allowed=...)`: an HTTP client of an app with the page."""

    def open_page(**words: Any) -> FlaskClient:
        app = make_app(TESTING=False, PROPAGATE_EXCEPTIONS=False)
        app.register_blueprint(locks_blueprint(**{"allowed": lambda: True, **words}))
        return app.test_client()

    return open_page


def take(locks: DistLock, client: FlaskClient, *names: str) -> Grant:
    with client.application.app_context():
        grant = locks.lock(*names).acquire(timeout=0)
    assert grant is not None
    return grant


def until_listed(locks: DistLock, client: FlaskClient, name: str) -> None:
    """A process tells of what has lasted for a moment."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    with client.application.app_context():
        while not any(one.name == name for one in locks["default"].list()):
            assert time.monotonic() < deadline
            pause.wait(0.05)


def page_of(client: FlaskClient, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Frame-Options"] == "DENY"
    return answer.text


def links(page: str, pattern: str) -> list[str]:
    return [html.unescape(url) for url in re.findall(rf'href="({pattern})"', page)]


def seen(grant: Grant, **words: object) -> dict[str, object]:
    return {
        "alias": "default",
        "name": grant.names[0],
        "hold": grant.fences[grant.names[0]].number,
        **words,
    }


async def asynchronous() -> bool:
    return True


@pytest.mark.attack("A31")
@pytest.mark.parametrize("words", [{}, {"allowed": None}, {"allowed": True}, {"allowed": asynchronous}])
def test_without_an_access_check_there_is_no_page(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="allowed="):
        locks_blueprint(**words)
    with pytest.raises(ConfigurationError, match="may_break="):
        locks_blueprint(allowed=lambda: True, may_break="ann")  # type: ignore[arg-type]


@pytest.mark.attack("A31")
@pytest.mark.parametrize(
    ("said", "status"),
    [(False, 403), (None, 403), (1, 500), ("ann", 500), ("a redirect to the login", 302)],
)
def test_nothing_but_true_lets_a_request_in(
    open_page: Callable[..., FlaskClient], locks: DistLock, said: object, status: int
) -> None:
    def allowed() -> object:
        return redirect("/login") if status == 302 else said

    client = open_page(allowed=allowed)
    grant = take(locks, client, "product_1")
    for url in ("/locks/", "/locks/lock?alias=default&name=product_1", "/locks/static/locks.js"):
        answer = client.get(url)
        assert answer.status_code == status
        assert "product_1" not in answer.text
    assert client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE).status_code == status
    grant.check()


@pytest.mark.attack("A31", control=True)
def test_where_the_site_lets_everybody_in_everybody_breaks(
    open_page: Callable[..., FlaskClient], locks: DistLock
) -> None:
    client = open_page(allowed=lambda: True)
    grant = take(locks, client, "product_1")
    assert "test_blueprint.py" in page_of(client, "/locks/lock?alias=default&name=product_1")
    assert client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE).status_code == 303
    assert grant.lost


def test_to_break_may_take_more_than_to_see(open_page: Callable[..., FlaskClient], locks: DistLock) -> None:
    client = open_page(may_break=lambda: False)
    grant = take(locks, client, "product_1")
    assert "test_blueprint.py" in page_of(client, "/locks/lock?alias=default&name=product_1")
    assert client.get("/locks/break", query_string=seen(grant)).status_code == 403
    assert client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE).status_code == 403
    grant.check()


@pytest.mark.attack("A32")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
    ],
)
def test_no_page_of_another_site_breaks_a_lock(
    open_page: Callable[..., FlaskClient], locks: DistLock, headers: dict[str, str]
) -> None:
    client = open_page()
    grant = take(locks, client, "product_1")
    assert client.post("/locks/break", data=seen(grant), headers=headers).status_code == 403
    grant.check()


def test_a_lock_is_asked_for_as_it_is_broken(
    open_page: Callable[..., FlaskClient], locks: DistLock, caplog: pytest.LogCaptureFixture
) -> None:
    client = open_page(user=lambda: "ann\nand a line of hers")
    assert "Nobody holds it." in page_of(client, "/locks/lock?alias=default&name=product_1")
    free = client.post("/locks/ask", data={"alias": "default", "name": "product_1"}, headers=FROM_THE_PAGE)
    assert "nobody holds it" in page_of(client, free.location)
    grant = take(locks, client, "product_1")
    assert "Ask for it back" in page_of(client, "/locks/lock?alias=default&name=product_1")
    assert client.get("/locks/ask", query_string=seen(grant)).status_code == 405
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/locks/ask", data=seen(grant), headers=elsewhere).status_code == 403
    may_not = open_page(may_break=lambda: False)
    assert may_not.post("/locks/ask", data=seen(grant), headers=FROM_THE_PAGE).status_code == 403
    assert not grant.release_requested
    answer = client.post("/locks/ask", data=seen(grant), headers=FROM_THE_PAGE)
    assert "Its holder was asked to give it back." in page_of(client, answer.location)
    assert grant.release_requested
    assert not grant.lost
    assert "was asked by ann?and a line of hers" in caplog.text


def test_readers_permits_and_a_latch_are_shown(
    open_page: Callable[..., FlaskClient], locks: DistLock
) -> None:
    client = open_page()
    with client.application.app_context():
        latch = locks["default"].latch("import_7", 3)
        latch.make()
        permits = locks.semaphore("gateway", limit=10, permits=3).acquire()
        reads = locks.read_lock("catalogue").acquire()
    assert permits is not None
    assert reads is not None
    until_listed(locks, client, "gateway")
    listed = page_of(client, "/locks/")
    assert "3 of 10 out, longest: " in listed
    assert "1 read, longest: " in listed
    url = "/locks/lock?alias=default&name={}&kind={}"
    page = page_of(client, url.format("gateway", "semaphore"))
    assert "<dt>Permits out</dt><dd>3 of 10</dd>" in page
    assert "<dt>Read by</dt><dd>1 caller</dd>" in page_of(client, url.format("catalogue", "lock"))
    assert "<dt>Left</dt><dd>3 of 3</dd>" in page_of(client, url.format("import_7", "latch"))
    assert "There is no such latch" in page_of(client, url.format("import_8", "latch"))
    assert client.get(url.format("gateway", "barrier")).status_code == 404
    (question,) = links(page, r"/locks/break[^\"]*")
    asked = page_of(client, question)
    assert "more are inside than there are permits" in asked
    hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked))
    assert "The lock was broken." in page_of(
        client, client.post("/locks/break", data=hidden, headers=FROM_THE_PAGE).location
    )
    assert permits.lost
    assert not reads.lost


@pytest.mark.attack("A32")
@pytest.mark.parametrize("headers", [FROM_THE_PAGE, {"Origin": "http://localhost"}])
def test_a_lock_is_broken_after_a_question_and_the_log_says_by_whom(
    open_page: Callable[..., FlaskClient],
    locks: DistLock,
    headers: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = open_page(user=lambda: "ann\nand a line of hers")
    grant = take(locks, client, "product_1")
    page = page_of(client, "/locks/lock?alias=default&name=product_1")
    (question,) = links(page, r"/locks/break[^\"]*")
    assert "Yes, break it" in page_of(client, question)
    grant.check()
    answer = client.post("/locks/break", data=seen(grant), headers=headers)
    assert answer.status_code == 303
    page = page_of(client, answer.location)
    assert "The lock was broken." in page
    assert "Nobody holds it." in page
    assert grant.lost
    assert "was broken by ann?and a line of hers" in caplog.text


def test_what_has_passed_on_since_it_was_seen_is_not_broken(
    open_page: Callable[..., FlaskClient], locks: DistLock
) -> None:
    client = open_page()
    first = take(locks, client, "product_1")
    with client.application.app_context():
        first.release()
        # The next hold has a number of its own.
        locks["default"].close()
    grant = take(locks, client, "product_1")
    assert "The hold that you saw has ended" in client.get("/locks/break", query_string=seen(first)).text
    answer = client.post("/locks/break", data=seen(first), headers=FROM_THE_PAGE)
    assert "Nothing was broken" in page_of(client, answer.location)
    grant.check()
    for wrong in ({"hold": "x"}, {"name": ""}, {"alias": "other"}):
        assert (
            client.post("/locks/break", data=seen(grant, **wrong), headers=FROM_THE_PAGE).status_code == 404
        )


@pytest.mark.attack("A34")
def test_names_are_text_wherever_they_are_shown(
    open_page: Callable[..., FlaskClient], locks: DistLock
) -> None:
    client, name = open_page(), "<script>alert(1)</script>/../%2e'\"&?#\u202e"
    grant = take(locks, client, name)
    until_listed(locks, client, name)
    page = page_of(client, "/locks/?q=<script")
    one = links(page, r"/locks/lock[^\"]*")[-1]
    assert "No lock has been held" in page_of(client, "/locks/?q=other")
    (question,) = links(page_of(client, one), r"/locks/break[^\"]*")
    for said in (page, page_of(client, one), page_of(client, question)):
        # What turns the direction of writing turns the name only.
        assert "<bdi>&lt;script&gt;alert" in said
        assert "<script>alert" not in said
    client.post("/locks/break", data=seen(grant), headers=FROM_THE_PAGE)
    assert grant.lost


@pytest.mark.attack("A34", control=True)
def test_where_a_template_takes_names_for_html_a_name_is_a_script(
    open_page: Callable[..., FlaskClient], locks: DistLock
) -> None:
    client = open_page()
    client.application.jinja_env.autoescape = False
    take(locks, client, "<script>alert(1)</script>")
    assert "<script>alert(1)</script>" in page_of(
        client, "/locks/lock?alias=default&name=<script>alert(1)</script>"
    )


@pytest.fixture
def serve() -> Iterator[Callable[[FlaskClient], str]]:
    """`serve(client)`: the address of the pages of its app, for a browser."""
    with ExitStack() as ends:

        def serve(client: FlaskClient) -> str:
            server = make_server("127.0.0.1", 0, client.application, threaded=True)
            ends.callback(server.server_close)
            serving = threading.Thread(target=server.serve_forever)
            serving.start()
            ends.callback(serving.join, PATIENCE)
            ends.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/locks"

        yield serve


LIVE = "document.querySelector('#distlock-live')?.innerText"


def test_in_a_browser_the_page_follows_the_locks(
    open_page: Callable[..., FlaskClient],
    serve: Callable[[FlaskClient], str],
    locks: DistLock,
    browser: Page,
) -> None:
    away, asked = threading.Event(), threading.Semaphore(0)

    def allowed() -> bool | Response:
        if not away.is_set():
            return True
        asked.release()
        return Response("<h1>Bad gateway</h1>", 502)

    client = open_page(allowed=allowed)
    url = serve(client)
    browser.hasten()
    browser.open(f"{url}/")
    grant = take(locks, client, "product_1")
    browser.wait_for("document.querySelector('.distlock-table th a')?.innerText === 'product_1'")
    assert faults_everywhere(browser) == []
    browser.open(f"{url}/lock?alias=default&name=product_1")
    assert faults_everywhere(browser) == []
    browser.click("a.distlock-break")
    browser.wait_for("document.querySelector('button.distlock-break') !== null")
    assert faults_everywhere(browser) == []
    browser.click("button.distlock-break")
    browser.wait_for(f"{LIVE}.includes('Nobody holds it')")
    assert grant.lost
    # A reload shows the lock, and breaks nothing.
    later = take(locks, client, "product_1")
    browser.tell("Page.reload")
    browser.wait_for(f"{LIVE}.includes('Held by')")
    later.check()
    browser.wait_for("document.readyState === 'complete'")
    # A proxy without a server behind it is asked again, and its page is not shown.
    away.set()
    assert all(asked.acquire(timeout=PATIENCE) for _ in range(2))
    away.clear()
    with client.application.app_context():
        later.release()
    browser.wait_for(f"{LIVE}.includes('Nobody holds it')")


def test_a_click_that_meets_a_refresh_asks_for_the_lock_back(
    open_page: Callable[..., FlaskClient],
    serve: Callable[[FlaskClient], str],
    locks: DistLock,
    browser: Page,
) -> None:
    slow, looks, answer = threading.Event(), threading.Event(), threading.Event()

    def allowed() -> bool:
        if slow.is_set():
            looks.set()
            assert answer.wait(PATIENCE)
        return True

    client = open_page(allowed=allowed)
    grant = take(locks, client, "product_1")
    browser.hasten()
    browser.open(f"{serve(client)}/lock?alias=default&name=product_1")
    browser.evaluate(
        "DOMParser.prototype.parseFromString = (parse => function (...page) {"
        " window.answered = true; return parse.apply(this, page); })(DOMParser.prototype.parseFromString)"
    )
    slow.set()
    assert looks.wait(PATIENCE)
    release = browser.press("button.distlock-ask")
    answer.set()
    browser.wait_for("window.answered")
    release()
    browser.wait_for("document.body?.innerText.includes('Its holder was asked to give it back.')")
    assert grant.release_requested
    assert not grant.lost
