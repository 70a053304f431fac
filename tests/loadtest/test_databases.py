"""The databases of the stack: private servers, and what is asked of a server that is somebody's own."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from demo_shop.ledger import database_url, open_sale, read_ledger
from loadtest.servers.databases import SERVERS, kind_of, open_database
from loadtest.servers.processes import StackError


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_a_server_listens_on_the_loopback_only_and_leaves_nothing(
    server: Callable[[], AbstractContextManager[str]],
) -> None:
    before = psutil.Process().children()
    with server() as url:
        (started,) = [child for child in psutil.Process().children() if child not in before]
        listening = {at.laddr for at in started.net_connections() if at.status == psutil.CONN_LISTEN}
        assert listening == {("127.0.0.1", database_url(url).port)}
        home = Path(started.cwd())
        assert "distlock-run-" in str(home)
        open_sale(url, 5, products=2)
        assert read_ledger(url).left == {1: 5, 2: 5}
    assert not started.is_running()
    assert not home.exists()


def test_a_mariadb_keeps_its_temporary_tables_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that starts clears those in its directory away: in a common one, also another server's.

    Nor does a connection to it load all the certificates of this machine, which takes ten times as long.
    """
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("certificates were loaded"))
    before = psutil.Process().children()
    with SERVERS["mariadb"]() as url:
        (process,) = [child for child in psutil.Process().children() if child not in before]
        engine = create_engine(database_url(url))
        with engine.connect() as connection:
            folder = connection.execute(text("SELECT @@tmpdir")).scalar_one()
        engine.dispose()
        assert folder == process.cwd().removesuffix("/data")


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        ("sqlite", "sqlite"),
        ("mariadb", "mariadb"),
        ("mysql://shop@127.0.0.1/shop", "mariadb"),
        ("mariadb://shop@127.0.0.1/shop", "mariadb"),
        ("postgresql+psycopg://shop@127.0.0.1/shop", "postgresql"),
        ("sqlite:////tmp/shop.sqlite3", "sqlite"),
    ],
)
def test_a_url_tells_which_database_it_is(database: str, kind: str) -> None:
    assert kind_of(database) == kind


@pytest.mark.parametrize("database", ["oracle", "mysql", "redis://127.0.0.1/0", ""])
def test_what_is_no_database_is_told_with_what_there_is(database: str) -> None:
    with pytest.raises(ValueError, match="there are: sqlite, postgresql, mariadb"):
        kind_of(database)


def test_tables_of_somebody_else_are_not_emptied(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'theirs.sqlite3'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE product (id INTEGER, price INTEGER)"))
    engine.dispose()
    with (
        pytest.raises(StackError, match=r"tables of its own \(product\). Give the load test an empty one"),
        open_database(url, tmp_path),
    ):
        pass


def test_a_database_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(StackError, match="does not let us in: ") as told,
        open_database("postgresql://shop:secret@127.0.0.1:1/shop", tmp_path),
    ):
        pass
    assert "secret" not in str(told.value)
