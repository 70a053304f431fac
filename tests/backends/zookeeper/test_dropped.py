"""Clients that are dropped without a word, sessions that are somebody else's, threads that can't be had."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

import distlock
from distlock import clock
from distlock.backends.base import Busy
from distlock.testing.waits import engine_of
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.stored import FOLDER, lock_path
from tests.zookeeper_server import CHROOT, ZooKeeperServer

#: Longer than any of it takes on a busy machine, seconds.
CEILING = 60.0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_clients_that_are_dropped_leave_no_threads_and_no_descriptors(
    zookeeper_server: ZooKeeperServer,
) -> None:
    gc.collect()
    before, files = set(threading.enumerate()), descriptors()
    sessions = zookeeper_server.tell("cons").count("sid=")
    for number in range(20):
        locks = distlock.connect(zookeeper_server.url, prefix="dropped", timeout=CEILING)
        with locks.lock(f"product_{number}"):
            pass
        del locks
    assert len(set(threading.enumerate()) - before) >= 20

    def freed() -> bool:
        gc.collect()
        return not set(threading.enumerate()) - before and descriptors() <= files

    eventually(freed, "threads and descriptors are given back", patience=CEILING, pause=0.5)
    eventually(
        lambda: zookeeper_server.tell("cons").count("sid=") <= sessions, "the sessions are ended", CEILING
    )


def test_a_dropped_client_gives_back_what_it_queued_for(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    first = ask(key)
    one.hold(first)
    dropped = Contender(zookeeper_server.url)
    dropped.queue(ask(key))
    assert len(zookeeper_server.children(key)) == 2
    del dropped

    def gone() -> bool:
        gc.collect()
        return len(zookeeper_server.children(key)) == 1

    eventually(gone, "it left the line", patience=CEILING, pause=0.5)
    assert one.renew([first]) == [True]


@pytest.mark.attack("A43")
@pytest.mark.parametrize("length", [False, True])
def test_an_answer_that_is_not_ours_ends_the_session_and_the_next_begins_at_once(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender, length: bool
) -> None:
    one, key = contender(proxy.url, io_timeout=CEILING), some_key()
    mine = ask(key)
    one.hold(mine)
    before = one.line().session.id
    proxy.garble_reply(length)
    # It goes on with the next session, in which it holds nothing.
    assert one.renew([mine]) == [False]
    assert proxy.lost.is_set()
    assert one.line().session.id not in (None, before)
    second = ask(some_key())
    one.hold(second)
    assert one.release(second)


@pytest.mark.parametrize("python", sorted({sys.executable, "/usr/bin/python3"}))
def test_a_host_in_brackets_behind_another_is_read_by_every_python(python: str) -> None:
    code = (
        "import sys\n"
        "from distlock.backends.zookeeper.address import ZooKeeperAddress\n"
        "print(ZooKeeperAddress('zookeeper://shop:p%40ss@zk1,[::1]:2181,[::2]/shop').shown)"
    )
    if not Path(python).exists():
        python = sys.executable
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), sysconfig.get_path("purelib")])
    answer = subprocess.run(
        [python, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False, cwd=root
    )
    assert (answer.stdout.strip(), answer.stderr) == ("zk1:2181,[::1]:2181,[::2]:2181/shop", "")


@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_node_that_belongs_to_nobody_is_told_with_the_line_to_write(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, ephemeral: bool
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    parent = lock_path(f"{CHROOT}/{FOLDER}", key)
    name = "_c_someone-lock-0000000000"
    zookeeper_server.admin.create(f"{parent}/{name}", b"", makepath=True, ephemeral=ephemeral)
    try:
        for wait in (True, False):
            if ephemeral:
                # The lock is taken, whatever session the node is of.
                assert (type(one.request(ask(key, wait=wait))) is Busy) is not wait
                continue
            with pytest.raises(distlock.BackendUnavailable, match=f"zkCli.sh delete {parent}/{name}$"):
                one.request(ask(key, wait=wait))
            assert zookeeper_server.children(key) == [name]
    finally:
        zookeeper_server.admin.delete(f"{parent}/{name}")
    if not ephemeral:
        mine = ask(key)
        one.hold(mine)
        assert one.release(mine)


def test_a_node_that_belongs_to_nobody_and_comes_later_is_told_too(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    parent = lock_path(f"{CHROOT}/{FOLDER}", key)
    first, second = ask(key), ask(key)
    one.hold(first)
    zookeeper_server.admin.create(f"{parent}/_c_someone-lock-", b"", sequence=True)
    two.queue(second)
    one.release(first)

    def told() -> bool:
        try:
            two.request(second)
        except distlock.BackendUnavailable as error:
            return "belongs to no session" in str(error)
        return False

    eventually(told, "it is told", patience=CEILING)
    (foreign,) = zookeeper_server.children(key)
    zookeeper_server.admin.delete(f"{parent}/{foreign}")


def test_no_call_outlasts_its_deadline_where_the_server_hangs(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(own_zookeeper.url, io_timeout=CEILING), some_key()
    mine = ask(key)
    one.hold(mine)
    own_zookeeper.pause()
    try:
        began = clock.now()
        for call in (one.request, one.release, one.cancel):
            with pytest.raises(distlock.BackendUnavailable):
                call(ask(key) if call == one.request else mine, clock.now() + 0.2)
        # Nor where there is no connection yet.
        with pytest.raises(distlock.BackendUnavailable):
            one.request(ask(key, ttl=50.0), clock.now() + 0.2)
        assert clock.now() - began < CEILING / 2
    finally:
        own_zookeeper.resume()


@pytest.mark.fault("F28")
def test_a_wait_ends_on_time_where_the_server_hangs(own_zookeeper: ZooKeeperServer) -> None:
    one = distlock.connect(own_zookeeper.url, prefix="hangs", ttl=CEILING, io_timeout=CEILING)
    two = distlock.connect(own_zookeeper.url, prefix="hangs", ttl=CEILING, io_timeout=CEILING)
    try:
        with one.lock("product_2"):
            pass
        with two.lock("product_1"):
            own_zookeeper.pause()
            began = clock.now()
            with pytest.raises(distlock.BackendUnavailable):
                one.lock("product_1").acquire(timeout=0.3)
            assert clock.now() - began < CEILING / 2
            own_zookeeper.resume()
    finally:
        own_zookeeper.resume()
        one.close()
        two.close()


def test_a_session_that_hangs_does_not_cost_another_its_holds(
    zookeeper_server: ZooKeeperServer, proxy: Proxy
) -> None:
    lost: list[str] = []
    locks = distlock.connect(
        proxy.url,
        prefix="two-ttls",
        ttl=1.5,
        io_timeout=20.0,
        timeout=CEILING,
        on_lost=lambda grant, why: lost.append(f"{grant}: {why}"),
    )
    try:
        other = locks.lock("product_2", ttl=20.0).acquire()
        assert other is not None
        proxy.freeze()
        # On a connection of its own, which is not frozen.
        mine = locks.lock("product_1").acquire()
        assert mine is not None
        hold = next(hold for hold in engine_of(locks).renewer.holds if hold.request.ttl == 1.5)
        engine_of(locks).renewer.confirm_all()
        for _ in range(4):
            renewed = hold.renewed
            eventually(lambda renewed=renewed: hold.renewed > renewed or hold.lost, "renewed", CEILING)
            engine_of(locks).renewer.confirm_all()
        assert not mine.lost
        assert not [each for each in lost if "product_1" in each]
        mine.release()
    finally:
        proxy.close()
        locks.close()


def test_a_thread_that_cannot_be_started_is_told_and_started_later(zookeeper_server: ZooKeeperServer) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, zookeeper_server.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=CEILING,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout.split() == ["told"] * 3 + ["held"], child.stderr
    assert child.stderr == ""


#: Root is not limited, so it becomes a user of whom no other process runs.
LIMITED = f"""
import encodings.idna, os, resource, secrets, sys
from distlock.backends.base import Acquired, LockRequest
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.errors import BackendUnavailable
from distlock.testing.protocol_fixtures import RecordingSink

backend = ZooKeeperBackend(sys.argv[1], io_timeout={CEILING})
backend.open(RecordingSink())
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(64_210)
    os.setuid(64_210)
most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
for limit in (0, 1, 2, most):
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, most))
    ask = LockRequest("limited:product_" + secrets.token_hex(4), secrets.token_hex(16), 60.0, 1)
    try:
        answer = backend.request(ask)
    except BackendUnavailable as error:
        assert "can start no more threads" in str(error), error
        print("told")
    else:
        assert isinstance(answer, Acquired)
        print("held")
backend.close()
"""
