"""What goes wrong between a process and the server, or with either of them."""

from __future__ import annotations

import gc
import itertools
import math
import multiprocessing
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from pymysql.connections import Connection

import distlock
from distlock import clock
from distlock.testing.conformance.closing import opened
from distlock.testing.process import Process
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import PATIENCE, engine_of, wait_until
from loadtest.servers.databases import MariaDBServer
from tests.backend_class import new_backend
from tests.core.interrupts import Interrupted, Tracer
from tests.hostile.wire import UNEXPECTED, AnswerChange, ChangingProxy
from tests.topologies.mysql.asking import Connect, asked, prepare, waiting, with_user
from tests.topologies.pooler import Pooler, after_version

# -- the server ----------------------------------------------------------------------------------


def test_a_restart_is_told_to_the_holder_and_the_lock_can_be_had_again(
    own_server: MariaDBServer, connect: Connect
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


def test_who_waits_while_the_server_stops_is_told_that_it_is_away(
    own_server: MariaDBServer, connect: Connect, pool: ThreadPoolExecutor
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


def test_more_names_than_sessions_are_waited_for(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    locks, other = connect(server), connect(server, max_connections=2)
    names = [f"many_{number}" for number in range(6)]
    grants = [locks.lock(name).acquire() for name in names]
    waits = [pool.submit(other.lock(name).acquire) for name in names]
    wait_until(lambda: waiting(server, "t:many%") == 2, "two wait in sessions")
    for grant in grants:
        assert grant is not None
        grant.release()
    for done in waits:
        assert done.result(PATIENCE) is not None


def test_the_next_in_the_process_of_the_holder_gets_no_lock_whose_session_has_ended(
    server: str, connect: Connect, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread that hears of it comes too late, as on a busy host.
    heard = threading.Event()
    lost = threading.Event()
    # However busy the host is, the process could pass its hold on.
    locks = connect(server, turn=PATIENCE, on_lost=lambda grant, why: lost.set())
    other = connect(server)
    grant = locks.lock("cut").acquire()
    assert grant is not None
    fence = grant.fence
    backend: Any = engine_of(locks).backend
    monkeypatch.setattr(type(backend._pool._listener), "_handle", lambda *_: heard.wait(0.05))
    waits = pool.submit(locks.lock("cut").acquire)
    wait_until(lambda: engine_of(locks).queues.waiting == 1, "the next one waits")
    (session,) = [one for one in backend._pool._all if one.holds]
    end_holder(server, "t:cut")
    has_it = other.lock("cut").acquire()
    assert has_it is not None
    poller = select.poll()
    poller.register(session.connection.fileno, select.POLLIN)
    assert poller.poll(PATIENCE * 1000), "its end has come here"
    grant.release()
    assert lost.wait(PATIENCE), "the holder is told"
    assert not waits.done()
    assert has_it.release() is None
    later = waits.result(PATIENCE)
    assert later is not None
    assert fence < has_it.fence < later.fence


def end_holder(server: str, key: str) -> None:
    [(session,)] = asked(server, f"SELECT IS_USED_LOCK(lock_name) FROM distlock_name WHERE name = '{key}'")
    asked(server, f"KILL {session}")


def test_a_lock_that_an_operator_ends_is_told_to_its_holder(server: str, connect: Connect) -> None:
    lost = threading.Event()
    locks = connect(server, on_lost=lambda grant, why: lost.set())
    grant = locks.lock("ended").acquire()
    assert grant is not None
    [(session,)] = asked(server, "SELECT IS_USED_LOCK(lock_name) FROM distlock_name WHERE name = 't:ended'")
    asked(server, f"KILL {session}")
    # A renewal would be due in twenty seconds.
    assert lost.wait(PATIENCE / 2)
    assert grant.lost


# -- the process ---------------------------------------------------------------------------------


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


def test_a_wait_that_could_not_be_called_off_in_time_keeps_no_session(server: str) -> None:
    one, two = Contender(new_backend(server)), Contender(new_backend(server))
    one.held(ask("given_up"))
    waits = ask("given_up")
    two.queued(waits)
    # Somebody else speaks where waits are called off, however quickly the server answers.
    main = two.backend._pool.main(clock.now() + PATIENCE)
    with main.exclusive(clock.now() + PATIENCE), pytest.raises(distlock.BackendUnavailable):
        two.backend.cancel(waits, clock.now())
    # A server that waits for a lock looks whether we are there, and not what we have said.
    wait_until(lambda: not waiting(server, "given_up"), "it has left the line")
    for each in (one, two):
        each.backend.close()


def test_a_wait_may_end_while_its_client_is_closed(server: str, pool: ThreadPoolExecutor) -> None:
    one, two = Contender(new_backend(server)), Contender(new_backend(server))
    one.held(ask("ended"))
    two.queued(ask("ended"))
    sessions = two.backend._pool
    session = next(session for session in sessions._all if session.waiting is not None)
    with session.exclusive(clock.now() + PATIENCE):
        closing = pool.submit(sessions.close, clock.now() + PATIENCE)
        wait_until(lambda: "close" in (names := running()) and "exclusive" in names, "it waits for us")
        session.waiting = None
    closing.result(2 * PATIENCE)
    for each in (one, two):
        each.backend.close()


def running() -> set[str]:
    """Return the names of the functions that other threads are in."""
    names, mine = set(), threading.get_ident()
    for thread, frame in sys._current_frames().items():
        while frame is not None and thread != mine:
            names.add(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
    return names


def test_a_backend_that_is_dropped_leaves_no_session_and_no_thread(server: str) -> None:
    before = opened()
    dropped = Contender(new_backend(server))
    dropped.held(ask("dropped"))
    assert opened() - before
    del dropped
    gc.collect()
    wait_until(lambda: not opened() - before, "nothing of it is left")


def test_descriptors_that_run_out_are_told_and_used_later(server: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, server], capture_output=True, text=True, check=False, timeout=600
    )
    # The connection needs one descriptor, and the thread that listens to it two.
    assert child.stdout.split() == ["BackendUnavailable"] * 3 + ["held"], child.stderr


LIMITED = """
import os, resource, sys
import distlock

def try_once():
    try:
        print("held" if locks.lock("product_1").acquire(timeout=0) else "taken")
    except Exception as error:
        print(type(error).__name__)

locks = distlock.connect(sys.argv[1])
# What the first lock imports needs descriptors, too.
locks.lock("product_1").acquire().release()
locks.close()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
highest = max(int(number) for number in os.listdir("/proc/self/fd"))
fillers = []
try:
    while True:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, hard))
        fillers.append(os.dup(0))
except OSError:
    pass
for spare in range(3):
    try_once()
    os.close(fillers.pop())
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try_once()
locks.close()
"""


def test_a_child_that_is_forked_while_a_thread_reads_an_answer_can_lock(
    server: str, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    """PyMySQL's buffer stays locked in the child, in which nobody reads."""
    unexpected = UNEXPECTED["mysql"]
    [begun] = [at for at, one in enumerate(unexpected.others) if one[4:] == b"\x01"]
    with ChangingProxy(server, unexpected) as proxy:
        locks = connect(proxy.url, io_timeout=PATIENCE)
        with locks.lock("product_1"):
            pass
        proxy.apply(AnswerChange("other type", 0, at=0, seed=begun))
        reads = pool.submit(locks.lock("product_1").locked)
        wait_until(lambda: "readinto" in running(), "the rest of an answer is waited for")
        child = multiprocessing.get_context("fork").Process(target=lock_once, args=(locks,))
        child.start()
        try:
            child.join(PATIENCE)
            assert child.exitcode == 0
        finally:
            child.kill()
            proxy.stop()
    assert isinstance(reads.exception(PATIENCE), distlock.BackendUnavailable)


def lock_once(locks: distlock.Locks) -> None:
    with locks.lock("product_2"):
        pass


# -- refusals ------------------------------------------------------------------------------------


def test_a_wrong_password_is_told_and_not_shown(server: str, connect: Connect) -> None:
    url = with_user(server, "guest", "IDENTIFIED BY 'right'").replace("guest@", "guest:wr0ng@")
    with pytest.raises(distlock.BackendUnavailable, match="Check the user and the password") as told:
        connect(url).lock("product_1").acquire()
    assert "wr0ng" not in f"{told.value} {told.value.__cause__}"
    with connect(url.replace("wr0ng", "right")).lock("product_1"):
        pass


def test_a_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    for url in (
        "mysql://shop:wr0ng@localhost",
        "mysql://shop:wr0ng@localhost:x/shop",
        "mysql://shop:12/wr0ng@localhost/shop",
        "mysql://shop:12?wr0ng@localhost/shop",
        "mysql://shop:12#wr0ng@localhost/shop",
        "mysql://shop@localhost/shop?ssl_ca=x&wr0ng@y",
        "mysql://shop@localhost/shop#wr0ng",
    ):
        with pytest.raises(distlock.ConfigurationError) as told:
            distlock.connect(url)
        assert "wr0ng" not in str(told.value)


def test_a_missing_table_names_the_command_that_makes_it(server: str, connect: Connect) -> None:
    asked(server, "CREATE DATABASE bare")
    with pytest.raises(distlock.ConfigurationError, match="Run 'distlock prepare'"):
        connect(server.replace("/shop?", "/bare?")).lock("product_1").acquire()


def test_a_user_with_the_rights_of_the_page_can_lock(server: str, connect: Connect) -> None:
    url = with_user(server, "clerk")
    prepare(url)  # each deploy may: it is there
    with connect(url).lock("mine"):
        assert connect(url).lock("mine").acquire(timeout=0.1) is None


def test_a_user_without_them_is_told_which(server: str, connect: Connect) -> None:
    asked(server, "CREATE USER stranger@'%'")
    asked(server, "GRANT SELECT ON distlock_name TO stranger@'%'")
    with pytest.raises(distlock.BackendUnavailable, match="SELECT, INSERT and UPDATE"):
        connect(server.replace("shop@", "stranger@")).lock("product_1").acquire()
    asked(server, "CREATE DATABASE unmade")
    asked(server, "GRANT SELECT ON unmade.* TO stranger@'%'")
    with pytest.raises(distlock.BackendUnavailable, match="be a user that may make tables"):
        prepare(server.replace("shop@", "stranger@").replace("/shop?", "/unmade?"))


def test_where_tls_is_asked_for_and_the_server_has_none_nothing_is_locked(
    server: str, connect: Connect
) -> None:
    url = server.replace("ssl_disabled=true", "ssl_verify_cert=true")
    with pytest.raises(distlock.LockError, match=r"(?i)ssl|tls"):
        connect(url).lock("product_1").acquire()


@pytest.mark.fault("F37")
def test_a_proxy_that_pools_is_refused_unless_it_pools_sessions(server: str, connect: Connect) -> None:
    with Pooler(server, after_version) as pooler:
        with pytest.raises(distlock.ConfigurationError, match=r"stands a proxy.*pools_sessions=True"):
            connect(pooler.url).lock("product_1").acquire()
        with connect(pooler.url, pools_sessions=True).lock("product_1"):
            assert not connect(server).lock("product_1").acquire(timeout=0)


def test_a_server_that_is_read_only_is_refused(server: str, connect: Connect) -> None:
    asked(server, "SET GLOBAL read_only = 1")
    try:
        with pytest.raises(distlock.BackendUnavailable, match="Put the primary in the URL"):
            connect(server).lock("product_1").acquire()
    finally:
        asked(server, "SET GLOBAL read_only = 0")


def test_what_the_site_has_set_ends_no_wait(server: str, connect: Connect, pool: ThreadPoolExecutor) -> None:
    url = with_user(server, "hurried", "WITH MAX_STATEMENT_TIME 0.1")
    locks, other = connect(url), connect(url)
    with locks.lock("slow"):
        assert other.lock("slow").acquire(timeout=1.0) is None
        waits = pool.submit(other.lock("slow").acquire)
    assert waits.result(PATIENCE) is not None


@pytest.mark.parametrize("closes", [True, False])
def test_an_interrupt_in_the_middle_of_an_answer_costs_no_later_call(
    server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    locks, other = connect(server), connect(server)
    with locks.lock("product_1"):
        pass
    honest, seen = Connection._read_packet, []

    def read(self: Any, *arguments: Any) -> Any:
        seen.append(self)
        if len(seen) < 3:
            return honest(self, *arguments)
        monkeypatch.undo()
        if closes:  # As PyMySQL does where it is interrupted while it reads.
            self._force_close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "_read_packet", read)
    with pytest.raises(KeyboardInterrupt):
        locks.lock("product_1").acquire()
    for name in ("product_2", "product_1"):
        with locks.lock(name):
            assert other.lock(name).locked()
        with other.lock(name):
            assert locks.lock(name).locked()


def test_an_interrupt_before_an_answer_leaves_the_connection_able_to_wait(
    server: str, connect: Connect
) -> None:
    backend: Any = engine_of(connect(server, io_timeout=PATIENCE)).backend
    with backend._executing(math.inf) as execute:
        execute("SELECT 1")
        for number in itertools.count(1):
            tracer = Tracer(number, files=("backends/sql/mysql_connection.py",))
            with suppress(Interrupted), tracer:
                execute("SELECT 1")
            if not tracer.where:
                break
            # Its end is not here yet when its beginning is read.
            [[[answer]]] = execute("SELECT REPEAT('x', 4000000)")
            assert len(answer) == 4_000_000, tracer.where
    assert number > 20, f"{number} points: is anything traced?"


def test_an_interrupt_that_ends_a_session_is_told_to_the_other_holders_in_it(
    server: str, connect: Connect, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    locks = connect(server, on_lost=lambda grant, why: lost.set())
    grant = pool.submit(locks.lock("product_1").acquire).result(PATIENCE)
    assert grant is not None

    def read(self: Any, *arguments: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "_read_packet", read)
    with pytest.raises(KeyboardInterrupt):
        locks.lock("product_2").acquire()
    # A renewal would be due in twenty seconds.
    assert lost.wait(PATIENCE / 2)
    assert grant.lost
    assert connect(server).lock("product_1").acquire() is not None
