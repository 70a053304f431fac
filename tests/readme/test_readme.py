"""The README's lines, typed into a new Django project and a new Flask app, sell what there is in a rush."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.readme.reader import DJANGO_VIEW, FLASK_APP, SETTING, Reader, Shop
from tests.web.quickstart import buy, two_instances, without_decorator

BUYERS, PURCHASES, STOCK = 50, 10, 100
REQUESTS = BUYERS * PURCHASES
THREADS = 16


@dataclass(frozen=True, slots=True, repr=False)
class Sale:
    statuses: list[int]
    left: int

    def __repr__(self) -> str:
        return f"<{self.left} left, answers {dict(Counter(self.statuses))}>"

    @property
    def sold(self) -> int:
        return self.statuses.count(200)

    @property
    def refused(self) -> int:
        """By the lock, and for whatever other reason: neither sold nor sold out."""
        return len(self.statuses) - self.sold - self.statuses.count(409)

    @property
    def is_exact(self) -> bool:
        """All of it was sold, once; nearly everybody heard so."""
        return (
            (self.sold, self.left) == (STOCK, 0)
            and len(self.statuses) == REQUESTS
            and self.refused < 0.02 * REQUESTS
        )


def sell(reader: Reader, shop: Shop) -> Sale:
    with two_instances(shop.folder, shop.application, reader.python, THREADS) as ports:
        statuses = buy(ports, shop.headers, BUYERS, PURCHASES)
    return Sale(statuses, shop.left())


# Nearly everybody is served within the time-out that the README sets: beside other tests not.
@pytest.mark.alone
def test_django(reader: Reader, tmp_path: Path) -> None:
    locked = sell(reader, reader.django(tmp_path / "shop", SETTING, STOCK))
    assert locked.is_exact, locked


@pytest.mark.alone
def test_flask(reader: Reader, tmp_path: Path) -> None:
    locked = sell(reader, reader.flask(tmp_path / "shop", FLASK_APP, STOCK))
    assert locked.is_exact, locked


def test_django_without_the_decorator_oversells(reader: Reader, tmp_path: Path) -> None:
    view = without_decorator(DJANGO_VIEW)
    control = sell(reader, reader.django(tmp_path / "shop", SETTING, STOCK, view))
    assert control.sold > STOCK, control
    assert not control.is_exact


def test_flask_without_the_decorator_oversells(reader: Reader, tmp_path: Path) -> None:
    control = sell(reader, reader.flask(tmp_path / "shop", without_decorator(FLASK_APP), STOCK))
    assert control.sold > STOCK, control
    assert not control.is_exact
