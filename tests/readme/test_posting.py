"""The README's view sells to who posts, as its lines say how: with the form, and with curl's headers."""

from __future__ import annotations

import re
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

from tests.readme.reader import SETTING, Reader
from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import two_instances

__all__ = ["redis_server"]


def status(browser: OpenerDirector, request: Request) -> int:
    try:
        with browser.open(request, timeout=60) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            return error.code


def test_the_form_and_the_command_of_the_readme_buy(
    reader: Reader, tmp_path: Path, redis_server: RedisServer
) -> None:
    setting = SETTING.replace("redis://localhost:6379/0", redis_server.url)
    shop = reader.django(tmp_path / "shop", setting, stock=3)
    with two_instances(shop.folder, shop.application, reader.python) as (port, _):
        browser, stranger = build_opener(HTTPCookieProcessor(CookieJar())), build_opener()
        with browser.open(f"http://127.0.0.1:{port}/", timeout=60) as response:
            page = response.read().decode()
        [action] = re.findall(r'<form method="post" action="([^"]*)">', page)
        [(name, token)] = re.findall(r'name="(\w+)" value="(\w+)"', page)
        url = f"http://127.0.0.1:{port}{action}"

        assert status(browser, Request(url, urlencode({name: token}).encode())) == 200
        assert status(stranger, Request(url, headers=dict(shop.headers), method="POST")) == 200
        assert status(stranger, Request(url, method="POST")) == 403
        assert status(stranger, Request(url)) == 405
    assert shop.left() == 1
