"""What goes wrong between a process and the server, or with either of them."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import distlock
from distlock import clock
from distlock.testing.conformance.closing import opened
from distlock.testing.process import Process
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import PATIENCE, engine_of, wait_until
from loadtest.servers.databases import PostgreSQLServer
from loadtest.servers.processes import free_port
from tests.backend_class import new_backend
from tests.bouncer import pgbouncer
from tests.topologies.pooler import Pooler, after_key
from tests.topologies.postgresql.asking import (
    Connect,
    asked,
    is_up,
    prepare,
    stopped,
    waiting,
    with_role,
)

#: The server lets a session in.
_WELCOME = b"R\0\0\0\x08\0\0\0\0"

# -- the server ----------------------------------------------------------------------------------


def test_a_restart_is_told_to_the_holder_and_the_lock_can_be_had_again(
    own_server: PostgreSQLServer, connect: Connect
) -> None:
    lost = threading.Event()
    locks = connect(own_server.url, on_lost=lambda grant, why: lost.set())
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    fence = grant.fence
    own_server.restart()
    # A renewal would be due in twenty seconds.
    assert lost.wait(PATIENCE / 2)
    assert grant.lost
    with locks.lock("product_1") as later:
        assert later.fence > fence


def test_fences_grow_through_a_crash_where_the_site_has_commits_not_awaited(
    own_server: PostgreSQLServer, connect: Connect
) -> None:
    asked(own_server.url, "ALTER DATABASE shop SET synchronous_commit = off")
    # Nor does the server write them by itself meanwhile.
    asked(own_server.url, "ALTER SYSTEM SET wal_writer_delay = '10s'")
    asked(own_server.url, "SELECT pg_reload_conf()")
    victim = psycopg.connect(own_server.url)
    grant = connect(own_server.url).lock("crash").acquire()
    assert grant is not None
    # The server ends all others, and recovers: it can't know what the killed one has done to its memory.
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    wait_until(lambda: grant.lost, "the session has ended")
    victim.close()
    wait_until(lambda: is_up(own_server.url), "the server has recovered")
    with connect(own_server.url).lock("crash") as later:
        assert later.fence > grant.fence


def test_who_waits_while_the_server_stops_is_told_that_it_is_away(
    own_server: PostgreSQLServer, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    locks, other = connect(own_server.url), connect(own_server.url)
    assert locks.lock("product_1").acquire()
    waits = pool.submit(other.lock("product_1").acquire)
    wait_until(lambda: waiting(own_server.url) == 1, "the other one waits")
    own_server.stop()
    with pytest.raises(distlock.BackendUnavailable, match="can't be used"):
        waits.result(PATIENCE)
    own_server.start()
    assert other.lock("product_1").acquire()


@pytest.mark.fault("F34")
def test_a_process_that_finds_no_connection_to_wait_in_asks_again(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    url = with_role(server, "crowded", "CONNECTION LIMIT 1")
    locks, other = connect(server), connect(url)
    grant = locks.lock("crowded").acquire()
    assert grant is not None
    waits = pool.submit(other.lock("crowded").acquire)
    wait_until(lambda: engine_of(other).queues.waiting == 1, "it waits")
    # It has its one connection: nobody else has any.
    refused = r"too many connections.*Raise max_connections on the server"
    wait_until(
        lambda: asked(server, "SELECT 1 FROM pg_stat_activity WHERE usename = 'crowded'") != [], "it is in"
    )
    with pytest.raises(distlock.BackendUnavailable, match=refused):
        connect(url).lock("crowded").acquire()
    assert waiting(server) == 0
    grant.release()
    assert waits.result(PATIENCE) is not None


def test_more_names_than_sessions_are_waited_for(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    locks, other = connect(server), connect(server, max_connections=2)
    names = [f"many_{number}" for number in range(6)]
    grants = [locks.lock(name).acquire() for name in names]
    waits = [pool.submit(other.lock(name).acquire) for name in names]
    wait_until(lambda: waiting(server) == 2, "two wait in sessions")
    for grant in grants:
        assert grant is not None
        grant.release()
    for done in waits:
        assert done.result(PATIENCE) is not None


@pytest.mark.fault("F31")
def test_the_next_in_the_process_of_the_holder_gets_no_lock_whose_session_has_ended(
    server: str, connect: Connect, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the message that ends the session and the end of the connection the lock is free already."""
    lost = threading.Event()
    with Pooler(server, lambda _: None, late=True) as pooler:
        # However busy the host is, the process could pass its hold on.
        locks = connect(pooler.url, turn=PATIENCE, on_lost=lambda grant, why: lost.set())
        grant = locks.lock("cut").acquire()
        assert grant is not None
        fence = grant.fence
        waits = pool.submit(locks.lock("cut").acquire)
        wait_until(lambda: engine_of(locks).queues.waiting == 1, "the next one waits")
        backend: Any = engine_of(locks).backend
        (session,) = [one for one in backend._pool._all if one.holds]
        end_holder(server, "t:cut")
        has_it = connect(server).lock("cut").acquire()
        assert has_it is not None
        poller = select.poll()
        poller.register(session.connection.fileno, select.POLLIN)
        assert poller.poll(PATIENCE * 1000), "the message has come here"
        grant.release()
        assert lost.wait(PATIENCE), "the holder is told"
        assert not waits.done()
        assert has_it.release() is None
        later = waits.result(PATIENCE)
        assert later is not None
        assert fence < has_it.fence < later.fence
        locks.close()


def end_holder(server: str, key: str) -> None:
    asked(
        server,
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN distlock_name ON objid = id::oid "
        f"WHERE locktype = 'advisory' AND granted AND name = '{key}'",
    )


def test_why_the_server_has_ended_the_session_is_told(server: str, connect: Connect) -> None:
    with Pooler(server, lambda _: None, late=True) as pooler:
        locks = connect(pooler.url)
        with locks.lock("told"):
            pass
        backend: Any = engine_of(locks).backend
        [session] = backend._pool._all
        asked(server, f"SELECT pg_terminate_backend({session.number})")
        poller = select.poll()
        poller.register(session.connection.fileno, select.POLLIN)
        assert poller.poll(PATIENCE * 1000), "the message has come here"
        with pytest.raises(distlock.BackendUnavailable, match=r"administrator command\. .*: try again"):
            locks.lock("told").acquire()
        with locks.lock("told"):
            pass
        locks.close()


def test_who_has_too_little_time_for_the_first_answer_ends_no_session(server: str, connect: Connect) -> None:
    """The callers of the other names use the same one, and may have more time."""
    for name in ("late", "later"):
        with connect(server).lock(name):
            pass
    locks = connect(f"{server}?application_name=late")
    assert not locks.lock("late").locked()
    its_sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'late'"
    [(session,)] = asked(server, its_sessions)
    assert isinstance(session, int)
    with stopped(session), pytest.raises(distlock.BackendUnavailable, match="no answer in time"):
        locks.lock("late").acquire(timeout=0.1)
    with locks.lock("later"):
        assert (session,) in asked(server, its_sessions)


def test_who_does_not_take_a_lock_in_its_window_waits_again(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    opened, opens, goes_on = [0], threading.Event(), threading.Event()

    def hold_back(data: bytes) -> None:
        """Hold back the welcome to the second session, which is the one that waits."""
        opened[0] += _WELCOME in data
        if opened[0] == 2 and not goes_on.is_set():
            opens.set()
            goes_on.wait(PATIENCE)

    with Pooler(server, hold_back) as pooler:
        grant = connect(server).lock("window").acquire()
        assert grant is not None
        locks = connect(f"{pooler.url}?application_name=window", io_timeout=PATIENCE, ack_window=0.1)
        assert locks.lock("window").locked()
        its_sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'window'"
        [(main,)] = asked(server, its_sessions)
        assert isinstance(main, int)
        waits = pool.submit(locks.lock("window").acquire)
        assert opens.wait(PATIENCE)
        wait_until(lambda: len(asked(server, its_sessions)) == 2, "the session that waits is there")
        with stopped(main):
            # It asks this session whether it has the lock.
            grant.release()
            goes_on.set()
            wait_until(
                # On a busy machine the lock may be granted first: then there is nothing to ask.
                lambda: waits.done() or asked(server, its_sessions) == [(main,)],
                "its window is over",
            )
        assert waits.result(PATIENCE) is not None
        locks.close()


@pytest.mark.fault("F31")
def test_a_lock_that_an_operator_ends_is_told_to_its_holder(server: str, connect: Connect) -> None:
    lost = threading.Event()
    locks = connect(server, on_lost=lambda grant, why: lost.set())
    grant = locks.lock("ended").acquire()
    assert grant is not None
    asked(
        server,
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN distlock_name ON objid = id::oid "
        "WHERE locktype = 'advisory' AND granted AND name = 't:ended'",
    )
    # A renewal would be due in twenty seconds.
    assert lost.wait(PATIENCE / 2)
    assert grant.lost


# -- the process ---------------------------------------------------------------------------------


@pytest.mark.fault("F03")
@pytest.mark.parametrize("ttl", [60.0, 3.0])
def test_a_killed_process_costs_nothing_and_a_stopped_one_its_ttl(
    server: str, connect: Connect, ttl: float
) -> None:
    holder = Process(server, prefix="t", ttl=ttl)
    fence = holder.do("acquire", "gone", PATIENCE)["fence"]
    if ttl > PATIENCE:
        holder.kill()
    else:
        holder.stop()
    grant = connect(server).lock("gone").acquire(timeout=PATIENCE)
    assert grant is not None
    assert list(grant.fence) > fence
    if ttl < PATIENCE:
        holder.go_on()
        assert holder.do("state")["lost"]
    holder.finish()


@pytest.mark.fault("F02")
def test_a_killed_process_that_waits_keeps_no_session(server: str, connect: Connect) -> None:
    waiter = Process(server, prefix="t", ttl=60.0)
    with connect(server).lock("kept"):
        waiter.begin("acquire", "kept", PATIENCE)
        wait_until(lambda: waiting(server) == 1, "it waits")
        waiter.kill()
        wait_until(lambda: waiting(server) == 0, "it has left the line")
    waiter.finish()


def test_holds_of_different_ttls_have_each_its_own_lease(server: str, connect: Connect) -> None:
    short, long = Process(server, prefix="t", ttl=2.0), connect(server)
    short.do("acquire", "short", PATIENCE)
    with long.lock("long", ttl=60.0), long.lock("brief", ttl=30.0):
        timeouts = asked(server, "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'")
        assert timeouts == [(3,)]
    short.finish()


@pytest.mark.fault("F07")
def test_a_forked_child_that_lives_on_does_not_keep_the_lock_of_its_killed_parent(
    server: str, connect: Connect
) -> None:
    holder = Process(server, prefix="t", ttl=60.0)
    holder.do("acquire", "forked", PATIENCE)
    child = holder.do("fork", "forked")["child"]
    try:
        holder.kill()
        assert connect(server).lock("forked").acquire(timeout=PATIENCE)
    finally:
        os.kill(child, signal.SIGKILL)
        holder.finish()


def test_a_backend_that_is_dropped_leaves_no_session_and_no_thread(server: str) -> None:
    before = opened()
    dropped = Contender(new_backend(server))
    dropped.held(ask("dropped"))
    assert opened() - before
    del dropped
    gc.collect()
    wait_until(lambda: not opened() - before, "nothing of it is left")


# -- refusals ------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_told_in_one_sentence(connect: Connect) -> None:
    with pytest.raises(distlock.BackendUnavailable, match=r"refused\. See whether it runs"):
        connect(f"postgresql://shop@127.0.0.1:{free_port()}/shop").lock("product_1").acquire()


def test_a_wrong_password_is_told_and_not_shown(server: str, connect: Connect) -> None:
    url = with_role(server, "guest", "PASSWORD 'right'").replace("guest@", "guest:wr0ng@")
    [(rules,)] = asked(server, "SHOW hba_file")
    path = Path(str(rules))
    path.write_text("host all guest all scram-sha-256\n" + path.read_text("ascii"), encoding="ascii")
    asked(server, "SELECT pg_reload_conf()")
    loaded = "SELECT 1 FROM pg_hba_file_rules WHERE auth_method = 'scram-sha-256'"
    wait_until(lambda: asked(server, loaded) != [], "the rule is there")
    with pytest.raises(distlock.BackendUnavailable, match="Check the user and the password") as told:
        connect(url).lock("product_1").acquire()
    assert "wr0ng" not in f"{told.value} {told.value.__cause__}"
    with connect(url.replace("wr0ng", "right")).lock("product_1"):
        pass


@pytest.mark.parametrize("password", ["wr0ng%zz", "wr0ng/x", "x/wr0ng", "x@wr0ng"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(password: str) -> None:
    with pytest.raises(distlock.ConfigurationError, match="cannot be read") as told:
        distlock.connect(f"postgresql://shop:{password}@localhost/shop")
    assert "wr0ng" not in str(told.value)
    assert told.value.__cause__ is None


def test_a_parameter_that_libpq_does_not_know_is_told_by_the_one_that_was_meant() -> None:
    with pytest.raises(distlock.ConfigurationError, match=r"Did you mean sslmode in the query\?") as told:
        distlock.connect("postgresql://shop:wr0ng@localhost/shop?sslmod=require&wr0ng=1")
    assert "wr0ng" not in str(told.value)


def test_a_server_without_the_tls_that_the_url_wants_is_told(server: str, connect: Connect) -> None:
    with pytest.raises(distlock.BackendUnavailable, match=r"Switch TLS on there.*another sslmode"):
        connect(f"{server}?sslmode=require").lock("product_1").acquire()
    with pytest.raises(distlock.BackendUnavailable, match=r'sslmode value: "requir"\. Correct it'):
        connect(f"{server}?sslmode=requir").lock("product_1").acquire()


def test_a_missing_table_names_the_command_that_makes_it(server: str, connect: Connect) -> None:
    asked(server, "CREATE DATABASE bare")
    with pytest.raises(distlock.ConfigurationError, match="Run 'distlock prepare'"):
        connect(server.removesuffix("shop") + "bare").lock("product_1").acquire()


@pytest.mark.attack("A39")
def test_a_user_with_the_rights_of_the_page_can_lock(server: str, connect: Connect) -> None:
    url = with_role(server, "clerk")
    prepare(url)  # each deploy may: it is there
    with connect(url).lock("mine"):
        assert connect(url).lock("mine").acquire(timeout=0.1) is None


def test_a_user_without_them_is_told_which(server: str, connect: Connect) -> None:
    asked(server, "CREATE ROLE stranger LOGIN")
    with pytest.raises(distlock.BackendUnavailable, match="Grant this user SELECT, INSERT and UPDATE"):
        connect(server.replace("shop@", "stranger@")).lock("product_1").acquire()
    asked(server, "CREATE DATABASE unmade")
    with pytest.raises(distlock.BackendUnavailable, match="be a user that may make tables"):
        prepare(server.replace("shop@", "stranger@").removesuffix("shop") + "unmade")


@pytest.mark.fault("F37")
def test_a_proxy_that_pools_is_refused_unless_it_pools_sessions(server: str, connect: Connect) -> None:
    with Pooler(server, after_key) as pooler:
        with pytest.raises(distlock.ConfigurationError, match=r"stands a proxy.*pools_sessions=True"):
            connect(pooler.url).lock("product_1").acquire()
        with connect(pooler.url, pools_sessions=True).lock("product_1"):
            assert not connect(server).lock("product_1").acquire(timeout=0)


@pytest.mark.fault("F37")
def test_pgbouncer_is_refused_unless_it_pools_sessions(server: str, connect: Connect) -> None:
    with pgbouncer(server) as pooled:
        for _ in range(3):
            with pytest.raises(distlock.ConfigurationError, match=r"stands a proxy.*pools_sessions=True"):
                connect(pooled).lock("product_1").acquire()
    with pgbouncer(server, mode="session") as pooled:
        locks = connect(pooled, pools_sessions=True)
        with locks.lock("product_1"):
            assert not connect(server).lock("product_1").acquire(timeout=0)
        with connect(server).lock("product_1"):
            assert not locks.lock("product_1").acquire(timeout=0)


@pytest.mark.fault("F37", control=True)
def test_two_clients_of_pgbouncer_have_one_lock_of_a_session(server: str) -> None:
    with (
        pgbouncer(server, size=1) as pooled,
        psycopg.connect(pooled, autocommit=True) as one,
        psycopg.connect(pooled, autocommit=True) as two,
    ):
        for client in (one, two):
            assert client.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)


def test_a_server_without_idle_time_outs_is_refused(
    server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No such server is at hand: what is oldest is set above it.
    monkeypatch.setattr("distlock.backends.sql.postgresql._OLDEST", 990000)
    with pytest.raises(distlock.ConfigurationError, match="Use version 14 or newer"):
        connect(server).lock("product_1").acquire()


def test_what_the_site_has_set_for_its_users_ends_no_wait(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    url = with_role(server, "hurried")
    asked(server, "ALTER ROLE hurried SET statement_timeout = '100ms'")
    asked(server, "ALTER ROLE hurried SET lock_timeout = '100ms'")
    asked(server, "ALTER ROLE hurried SET idle_session_timeout = '100ms'")
    locks, other = connect(url), connect(url)
    with locks.lock("slow"):
        assert other.lock("slow").acquire(timeout=1.0) is None
        waits = pool.submit(other.lock("slow").acquire)
    assert waits.result(PATIENCE) is not None


def test_numbers_are_not_read_from_the_past_whatever_the_site_has_set(server: str) -> None:
    url = with_role(server, "careful")
    asked(server, "ALTER ROLE careful SET default_transaction_isolation = 'serializable'")
    connection, _ = new_backend(url)._dialect.open(clock.now() + PATIENCE, PATIENCE, waits=False)
    assert connection.call("SHOW transaction_isolation", clock.now() + PATIENCE) == [[["read committed"]]]
    connection.close()
