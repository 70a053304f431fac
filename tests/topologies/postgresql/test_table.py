"""What somebody does to the table costs no process its locks, and makes no two of one."""

from __future__ import annotations

import psycopg
import pytest

import distlock
from distlock.testing.process import Process
from distlock.testing.waits import PATIENCE, wait_until
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
