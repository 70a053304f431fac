"""Each row of the README's table of backends, written as it stands there into a new project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme.reader import README, Reader
from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import buy, two_instances
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

__all__ = ["redis_server", "zookeeper_server"]

STOCK, THREADS = 20, 16


def rows() -> list[str]:
    """What each row of the table of lock services tells to set."""
    table = re.findall(r"^\| .*\.md\).*$", README, re.MULTILINE)
    return [setting for row in table for setting in re.findall(r"\[`([^`]+)`\]", row)]


#: `tests/topologies` starts these servers and tests the line of each.
ELSEWHERE = {"redis+sentinel", "redis+cluster", "redlock", "postgresql", "mysql"}


def test_the_table_has_every_backend() -> None:
    assert [re.sub(r":///?.*", "", row) for row in rows()] == [
        "file",
        "redis",
        "redis+sentinel",
        "redis+cluster",
        "redlock",
        "zookeeper",
        "postgresql",
        "mysql",
        '"BACKEND": "database"',
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


@pytest.mark.parametrize("row", [row for row in rows() if row.partition(":")[0] not in ELSEWHERE])
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
    shop = reader.django(tmp_path / "shop", setting, STOCK)
    # A lock in memory is one process's: for tests.
    instances = 1 if row == "memory://" else 2
    with two_instances(shop.folder, shop.application, reader.python, THREADS) as ports:
        statuses = buy(ports[:instances] * (3 - instances), shop.headers, buyers=16, purchases=3)
    # On a busy machine somebody may not be served in time.
    assert (statuses.count(200), shop.left()) == (STOCK, 0), statuses
    assert set(statuses) <= {200, 409, 423, 503}, statuses
