"""The README's lines, typed into a new Django project and a new Flask app, sell what there is in a rush."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.readme.reader import DJANGO_VIEW, FLASK_APP, README, SETTING, Reader, Shop
from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import buy, two_instances, without_decorator
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

__all__ = ["redis_server", "zookeeper_server"]

# Nearly everybody is served within the time-out that the README sets: beside other tests not.
pytestmark = pytest.mark.alone

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


def test_django(reader: Reader, tmp_path: Path) -> None:
    locked = sell(reader, reader.django(tmp_path / "locked", SETTING, STOCK))
    view = without_decorator(DJANGO_VIEW)
    control = sell(reader, reader.django(tmp_path / "control", SETTING, STOCK, view))
    assert locked.is_exact, locked
    assert control.sold > STOCK, control
    assert not control.is_exact


def test_flask(reader: Reader, tmp_path: Path) -> None:
    locked = sell(reader, reader.flask(tmp_path / "locked", FLASK_APP, STOCK))
    control = sell(reader, reader.flask(tmp_path / "control", without_decorator(FLASK_APP), STOCK))
    assert locked.is_exact, locked
    assert control.sold > STOCK, control
    assert not control.is_exact


def rows() -> list[str]:
    """What stands first in each row of the table of backends."""
    return re.findall(r"^\| \[`([^`]+)`\]", README, re.MULTILINE)


def test_the_table_has_every_backend() -> None:
    assert [re.sub(r":///?.*", "", row) for row in rows()] == [
        "file",
        "redis",
        "zookeeper",
        '"BACKEND": "database"',
        "memory",
    ]


def alias(row: str, folder: Path, servers: dict[str, str]) -> str:
    """The line of the settings that the row tells to write; *servers*: those of the test, by scheme."""
    scheme = row.partition(":")[0]
    if row.startswith('"'):
        return row
    if scheme == "file":
        # As written, but below a directory of the test.
        return f'"LOCATION": "file://{folder}{row.removeprefix("file://")}"'
    return f'"LOCATION": "{servers.get(scheme, row)}"'


@pytest.mark.parametrize("row", rows())
def test_each_row_of_the_table_works_as_it_is_written(
    row: str,
    reader: Reader,
    tmp_path: Path,
    redis_server: RedisServer,
    zookeeper_server: ZooKeeperServer,
) -> None:
    servers = {"redis": redis_server.url, "zookeeper": zookeeper_server.url}
    setting = f'DISTLOCK = {{"default": {{{alias(row, tmp_path, servers)}}}}}'
    setting = f'INSTALLED_APPS += ["django_distlock"]\n{setting}\n'
    shop = reader.django(tmp_path / "shop", setting, stock=20)
    # A lock in memory is one process's: for tests.
    instances = 1 if row == "memory://" else 2
    with two_instances(shop.folder, shop.application, reader.python, THREADS) as ports:
        statuses = buy(ports[:instances] * (3 - instances), shop.headers, buyers=16, purchases=3)
    assert (statuses.count(200), statuses.count(409), shop.left()) == (20, 28, 0), statuses
