from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from loadtest.servers.databases import running_postgresql
from tests.oscar.bank import Bank
from tests.oscar.buying import fill_baskets
from tests.oscar.site import Site
from tests.web.quickstart import own_environment, two_instances

STOCK, BUYERS = 20, 40


@dataclass(frozen=True)
class Template:
    """A database that is copied for each shop, and the sessions of its users, whose baskets are full."""

    url: str
    sessions: list[str]


@dataclass(frozen=True)
class Shop:
    """A site, its database, and the bank that it asks for payments."""

    site: Site
    bank: Bank
    database: str
    sessions: list[str]

    def one(self, query: str) -> int:
        """Return the number that *query* gives."""
        with psycopg.connect(self.database) as connection:
            (number,) = connection.execute(query).fetchone() or (0,)
            return int(number)

    def orders(self) -> int:
        return self.one("SELECT count(*) FROM order_order")

    def allocated(self) -> int:
        return self.one("SELECT coalesce(sum(num_allocated), 0) FROM partner_stockrecord")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    with running_postgresql() as url, pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, "-m", "tests.oscar.stock_up", str(STOCK), str(BUYERS)]
        patch.setenv("SHOP_DATABASE", url)
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        done = subprocess.run(command, env=own_environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        sessions = json.loads(done.stdout)
        site = Site(tmp_path_factory.mktemp("filling"))
        with two_instances(site.folder, "wsgi") as ports:
            fill_baskets(ports, sessions)
        yield Template(url, sessions)


@pytest.fixture
def open_shop(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Shop]]:
    """Opens a shop with the whole stock: each has a folder and a database of its own."""
    numbers = itertools.count()
    with Bank() as bank:

        def opened() -> Shop:
            name = f"{tmp_path.name}_{next(numbers)}"
            with psycopg.connect(template.url, dbname="postgres", autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE shop')
            url = template.url.rpartition("/")[0] + "/" + name
            monkeypatch.setenv("SHOP_DATABASE", url)
            monkeypatch.setenv("SHOP_BANK", bank.url)
            folder = tmp_path / name
            folder.mkdir()
            bank.payments.clear()
            return Shop(Site(folder), bank, url, template.sessions)

        yield opened
