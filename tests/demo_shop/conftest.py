"""One Chromium for all tests of the shop's pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.demo_shop.browser import Page, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with open_browser() as page:
        yield page
