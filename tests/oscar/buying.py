"""Buyers with a browser each: they fill a basket and place an order, as the shop's pages have them do."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from tests.web.quickstart import REFUSED

TOKEN = "1" * 32
BOUGHT = "/checkout/thank-you/"
#: The shop sends those there whose basket can't be bought, because it is empty or because nothing is left.
BACK = "/basket/"


class Browser:
    """One user who is logged in."""

    def __init__(self, session: str) -> None:
        self._cookie = f"sessionid={session}; csrftoken={TOKEN}"

    def ask(self, port: int, method: str, path: str, **form: str) -> tuple[int, str, float]:
        """Return the status, where to go on, and after how many seconds one may come back."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {"Cookie": self._cookie, "X-CSRFToken": TOKEN}
        if form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, urlencode(form), headers)
            response = connection.getresponse()
            response.read()
            return (
                response.status,
                response.getheader("Location", ""),
                float(response.getheader("Retry-After", "0")),
            )
        finally:
            connection.close()

    def fill_basket(self, port: int) -> None:
        assert self.ask(port, "POST", "/basket/add/1/", quantity="1")[0] == 302
        # Nothing has to be shipped, which the shop notes here.
        assert self.ask(port, "GET", "/checkout/shipping-method/")[0] == 302

    def place_order(self, port: int) -> str:
        """Return where the shop sends the buyer, or another status. A buyer who is refused comes back."""
        while True:
            status, path, after = self.ask(port, "POST", "/checkout/preview/", action="place_order")
            if status not in REFUSED:
                return path if status == 302 else str(status)
            time.sleep(after)


def fill_baskets(ports: Sequence[int], sessions: Sequence[str]) -> None:
    """Have each buyer put the product into the basket, and choose how to have it sent."""
    with ThreadPoolExecutor(8) as pool:
        browsers = (Browser(session) for session in sessions)
        list(pool.map(Browser.fill_basket, browsers, itertools.cycle(ports)))


def buy(ports: Sequence[int], sessions: Sequence[str]) -> Counter[str]:
    """Have all buy at once, from all instances. Counts the answers."""
    ready = threading.Barrier(len(sessions))

    def buyer(session: str, port: int) -> str:
        ready.wait(120)
        return Browser(session).place_order(port)

    with ThreadPoolExecutor(len(sessions)) as pool:
        return Counter(pool.map(buyer, sessions, itertools.cycle(ports)))
