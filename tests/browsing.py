"""One Chromium for all tests of a process: it takes longer to start than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.demo_shop.browser import Browser, Page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    # Tests of the oldest versions have no pages, and no Python client for a browser.
    from tests.demo_shop.browser import running_chromium

    with running_chromium() as running:
        yield running


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Page]:
    """A tab of it."""
    with chromium.tab() as page:
        yield page
