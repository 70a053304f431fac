"""What an operator is told of the server."""

from __future__ import annotations

import psycopg
import pytest

from distlock.backends.inspectable import Finding
from loadtest.servers.databases import POSTGRESQL_OPTIONS, own_postgresql
from tests.topologies.postgresql.asking import Connect, with_role


def examined(connect: Connect, url: str, **options: object) -> dict[str, Finding]:
    return {one.about: one for one in connect(url, **options).namespace.examine()}


def test_the_rights_of_the_page_are_enough_to_look(server: str, connect: Connect) -> None:
    found = examined(connect, with_role(server, "looker"))
    assert {about: one.level for about, one in found.items()} == {
        "server": "ok",
        # The servers of the tests are quick, and not safe.
        "persistence": "warning",
        "connections": "ok",
    }
    assert found["server"].said.startswith("PostgreSQL 1")


def test_sessions_that_the_server_has_no_room_for_are_told(server: str, connect: Connect) -> None:
    found = examined(connect, server, max_connections=400)
    assert (found["connections"].level, found["connections"].said.endswith("up to 401.")) == ("warning", True)


@pytest.mark.fault("F36")
def test_a_standby_that_may_lack_the_last_fences_is_told(connect: Connect) -> None:
    with own_postgresql({**POSTGRESQL_OPTIONS, "fsync": "on"}) as own:
        assert examined(connect, own.url)["persistence"].level == "ok"
        follower = psycopg.pq.PGconn.connect(f"{own.url}?replication=true".encode())
        try:
            assert follower.exec_(b"IDENTIFY_SYSTEM").status == psycopg.pq.ExecStatus.TUPLES_OK
            told = examined(connect, own.url)["replication"]
        finally:
            follower.finish()
    assert (told.level, told.said.startswith("Its standbys: 1.")) == ("warning", True)
