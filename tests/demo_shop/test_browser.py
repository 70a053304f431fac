"""A hand waits for a page that is still coming, and so do the browser's clicks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.demo_shop.browser import Page, PageLeftError

#: Seconds, and longer than a click takes.
LATE = 0.5
PAGE = b"""<!doctype html><title>Shop</title><link rel="stylesheet" href="late.css">
<button onclick="document.title = document.readyState">Buy</button>"""
STYLE = b"button { margin-top: 500px }"


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        late = self.path == "/late.css"
        if late:
            threading.Event().wait(LATE)
        body = STYLE if late else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/css" if late else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def shop() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_what_is_clicked_has_its_place(browser: Page, shop: str) -> None:
    browser.tell("Page.navigate", url=shop)
    browser.wait_for("document.querySelector('button') !== null")
    browser.click("button")
    browser.wait_for("document.title !== 'Shop'")
    assert browser.evaluate("document.title") == "complete"


def test_a_page_that_is_left_while_it_is_asked_is_asked_again(
    browser: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = browser.socket.recv
    left = [{"code": -32000, "message": "Inspected target navigated or closed"}]

    def recv() -> str | bytes:
        said = json.loads(asked())
        if "id" in said and left:
            said["error"] = left.pop()
        return json.dumps(said)

    monkeypatch.setattr(browser.socket, "recv", recv)
    browser.wait_for("true")
    assert not left
    left.append({"code": -32000, "message": "Inspected target navigated or closed"})
    with pytest.raises(PageLeftError):
        browser.evaluate("true")
