"""What an operator is told of the server."""

from __future__ import annotations

from distlock.backends.inspectable import Finding
from loadtest.servers.databases import MARIADB_OPTIONS, own_mariadb
from tests.topologies.mysql.asking import Connect, with_user


def examined(connect: Connect, url: str, **options: object) -> dict[str, Finding]:
    return {one.about: one for one in connect(url, **options).namespace.examine()}


def test_the_rights_of_the_page_are_enough_to_look(server: str, connect: Connect) -> None:
    found = examined(connect, with_user(server, "looker"))
    assert {about: one.level for about, one in found.items()} == {
        "server": "ok",
        # The servers of the tests are quick, and not safe.
        "persistence": "warning",
        "connections": "ok",
    }
    assert found["server"].said.startswith("MariaDB 1")


def test_sessions_that_the_server_has_no_room_for_are_told(server: str, connect: Connect) -> None:
    found = examined(connect, server, max_connections=400)
    assert (found["connections"].level, found["connections"].said.endswith("up to 401.")) == ("warning", True)


def test_a_node_of_a_cluster_is_told(connect: Connect) -> None:
    # It says so of itself, also without the others.
    with own_mariadb((*MARIADB_OPTIONS, "--innodb-flush-log-at-trx-commit=1", "--wsrep-on=ON")) as own:
        found = examined(connect, own.url)
    assert (found["cluster"].level, found["persistence"].level) == ("warning", "ok")
