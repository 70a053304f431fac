"""What somebody does to the table costs no process its locks, and makes no two of one."""

from __future__ import annotations

import psycopg
import pytest

import distlock
from distlock.testing.process import Process
from distlock.testing.waits import PATIENCE, wait_until
from tests.topologies.pooler import Pooler
from tests.topologies.postgresql.asking import Connect, asked, prepare


def test_a_row_that_is_another_names_by_now_is_no_key(server: str, connect: Connect) -> None:
    asked(server, "CREATE DATABASE emptied")
    url = server.removesuffix("shop") + "emptied"
    prepare(url)
    locks = connect(url)
    with locks.lock("a"):
        pass
    asked(url, "TRUNCATE distlock_name RESTART IDENTITY")
    with connect(url).lock("b"):
        pass
    with pytest.raises(distlock.BackendUnavailable, match="emptied or made anew"):
        locks.lock("a").acquire()
    with locks.lock("a"):
        assert connect(url).lock("a").acquire(timeout=0) is None


def test_a_row_that_was_taken_away_is_told_once_and_made_anew(server: str, connect: Connect) -> None:
    locks = connect(server)
    with locks.lock("pruned"):
        pass
    asked(server, "DELETE FROM distlock_name WHERE name = 't:pruned'")
    with pytest.raises(distlock.BackendUnavailable, match="emptied or made anew"):
        locks.lock("pruned").acquire()
    with locks.lock("pruned"):
        assert connect(server).lock("pruned").acquire(timeout=0) is None


def test_a_row_that_comes_and_goes_while_it_is_looked_for_is_made_anew(server: str, connect: Connect) -> None:
    """Another process makes the row, and somebody deletes it between our insertion and our next look."""
    changes: list[str] = []

    def change(statement: str) -> None:
        changes.append(statement)
        asked(server, statement)

    def look(answer: bytes) -> None:
        if not changes and b"\0\1id\0" in answer and b"SELECT 0\0" in answer:
            change("INSERT INTO distlock_name (name) VALUES ('t:fleeting')")
        elif len(changes) == 1 and b"INSERT 0 0\0" in answer:
            change("DELETE FROM distlock_name WHERE name = 't:fleeting'")

    with Pooler(server, look) as proxy:
        locks = connect(proxy.url)
        with locks.lock("fleeting"):
            assert len(changes) == 2
            assert connect(server).lock("fleeting").acquire(timeout=0) is None
        locks.close()


def test_a_process_that_hangs_while_a_row_keeps_it_waiting_keeps_its_locks_no_longer(
    server: str, connect: Connect
) -> None:
    holder = Process(server, prefix="t", ttl=2.0)
    holder.do("acquire", "before", PATIENCE)
    with psycopg.connect(server) as somebody:
        somebody.execute("INSERT INTO distlock_name (name) VALUES ('t:after')")
        holder.begin("acquire", "after", PATIENCE)
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        wait_until(lambda: asked(server, waits) != [], "it waits for the row")
        holder.stop()
        assert connect(server).lock("before").acquire(timeout=PATIENCE)
        somebody.rollback()
    holder.kill()


@pytest.fixture(scope="module")
def of_one_hash(server: str) -> tuple[str, str]:
    """Two names of one 32-bit hash. Most code makes the number of an advisory lock with `hashtext`."""
    [(one, two)] = asked(
        server,
        "SELECT min('product_' || n), max('product_' || n) FROM generate_series(1, 400000) n "
        "GROUP BY hashtext('product_' || n) HAVING count(*) > 1 LIMIT 1",
    )
    return str(one), str(two)


@pytest.mark.attack("A19")
def test_names_of_one_32_bit_hash_are_two_locks(
    server: str, connect: Connect, of_one_hash: tuple[str, str]
) -> None:
    one, two = of_one_hash
    with connect(server).lock(one), connect(server).lock(two, timeout=0):
        assert connect(server).lock(one).acquire(timeout=0) is None


@pytest.mark.attack("A19", control=True)
def test_with_the_hash_as_the_lock_they_are_one(server: str, of_one_hash: tuple[str, str]) -> None:
    one, two = of_one_hash
    with psycopg.connect(server, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(hashtext(%s))", [one])
        assert asked(server, f"SELECT pg_try_advisory_lock(hashtext('{two}'))") == [(False,)]
