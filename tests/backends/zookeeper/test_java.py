"""docs/from/java.md: its Java class, and what a Java program and Python processes are to each other."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

import distlock
from distlock.testing.waits import wait_for_waiters
from tests.backends.zookeeper.contender import LONG, some_key
from tests.backends.zookeeper.curator import PAGE, Curator
from tests.docs.blocks import blocks
from tests.redis_server import PATIENCE, eventually
from tests.stored import spelled
from tests.zookeeper_server import CHROOT, ZooKeeperServer

PREFIX = "java"
#: The shortest session of distlock, seconds; and a lifetime that it is for.
SHORT_SESSION = 2.0
SHORT_TTL = 1.5
#: Milliseconds in which Java finds out that it has to wait.
A_MOMENT = 300
A_WHILE = 60_000
#: A Python process that holds a lock until it is killed: URL, name, lifetime.
HOLDER = """
import sys, time, distlock
locks = distlock.connect(sys.argv[1], prefix="java", ttl=float(sys.argv[3]), timeout=60, io_timeout=60)
grant = locks.lock(sys.argv[2]).acquire()
print("held", flush=True)
time.sleep(600)
"""
NAMES = [
    "hot",
    "a b*c~d+e%f_g.h-i/j",
    "~*+ %:",
    ":",
    "%3Ahot",
    "Größe für Äpfel",
    "e\u0301 and é",
    "東京 🔒 👩\u200d🚀",
    "\u2028\xa0\xad\ufeff",
    "'\"()!@&=$,;?#[]{}|\\^`<>",
    "\u0130\u0131\u017f\u212a",
]

MakeJava = Callable[..., Curator]
Connect = Callable[..., distlock.Locks]


@pytest.fixture
def name() -> str:
    return some_key().partition(":")[2]


@pytest.fixture
def java(zookeeper_server: ZooKeeperServer, java_classes: Path, name: str) -> Iterator[MakeJava]:
    """Make Java programs, by default with the mutex of *name*."""
    made: list[Curator] = []

    def make(session: float = LONG, name: str = name) -> Curator:
        made.append(Curator(java_classes, zookeeper_server, "/not-a-lock", session))
        made[-1].lock(CHROOT, PREFIX, name)
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def connect(zookeeper_server: ZooKeeperServer) -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(**more: float) -> distlock.Locks:
        made.append(
            distlock.connect(
                zookeeper_server.url, prefix=PREFIX, ttl=LONG, timeout=PATIENCE, io_timeout=PATIENCE, **more
            )
        )
        return made[-1]

    yield connect
    for one in made:
        one.close()


def is_javas(node: str) -> bool:
    """Return whether Curator made *node*: its tokens are UUIDs with dashes, those of distlock have none."""
    return "-" in node.removeprefix("_c_").rpartition("-lock-")[0]


def test_java_encodes_each_name_as_distlock_does(java: MakeJava) -> None:
    assert spelled(":hot") == "%3Ahot", "as the page says"
    curator = java()
    # Latin, Greek and Cyrillic, 16 letters at a time: longer names get a digest.
    letters = "".join(one for one in map(chr, range(0x20, 0x500)) if one.isprintable())
    pieces = [letters[start : start + 16] for start in range(0, len(letters), 16)]
    for key in [*(f"shop:{name}" for name in NAMES + pieces), ":hot", ":~", "shop:" + "x" * 193]:
        assert curator.encode(key) == spelled(key)


def test_java_refuses_a_name_that_gets_a_digest(java: MakeJava) -> None:
    curator = java()
    for key in ("shop:" + "x" * 194, "shop:" + "🔒" * 17):
        assert len(quote(key, safe="")) > 200
        assert curator.encode(key) == "refused"


@pytest.mark.parametrize("prefix", ["shop", ""])
def test_the_two_blocks_of_the_page_lock_the_same_node(
    zookeeper_server: ZooKeeperServer, java: MakeJava, prefix: str
) -> None:
    (block,) = (one.text for one in blocks() if (one.page, one.language) == (PAGE, "python"))
    code = block.replace("zk1:2181,zk2:2181,zk3:2181", f"127.0.0.1:{zookeeper_server.port}")
    code = code.replace('prefix="shop"', f'prefix="{prefix}", ttl={LONG}, io_timeout={PATIENCE}')
    assert "127.0.0.1" in code
    assert "io_timeout" in code
    names: dict[str, distlock.Locks] = {}
    exec(code, names)
    curator = java()
    curator.lock("/shop", prefix, "hot")
    with closing(names["locks"]) as locks:
        with locks.lock("hot"):
            assert not curator.acquire(A_MOMENT)
            (node,) = zookeeper_server.admin.get_children("/shop/distlock-1")
            assert node == f"{prefix}%3Ahot"
        assert curator.acquire(A_WHILE)
        assert locks.lock("hot").acquire(timeout=0) is None
        curator.release()
    zookeeper_server.admin.delete("/shop", recursive=True)


def test_a_killed_python_process_keeps_java_waiting_until_its_session_ends(
    zookeeper_server: ZooKeeperServer, java: MakeJava, name: str
) -> None:
    """The one with a long session is the control: its lock is not free, although its process is gone."""
    for session, ttl in ((f"{name}_long", LONG), (f"{name}_short", SHORT_TTL)):
        words = [sys.executable, "-c", HOLDER, zookeeper_server.url, session, str(ttl)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8") as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGKILL)
    assert not java(name=f"{name}_long").acquire(A_MOMENT)
    assert java(name=f"{name}_short").acquire(A_WHILE)


def test_a_killed_java_process_keeps_python_waiting_until_its_session_ends(
    java: MakeJava, connect: Connect, name: str
) -> None:
    lasting, brief, locks = java(name=f"{name}_long"), java(SHORT_SESSION, f"{name}_short"), connect()
    for curator in (lasting, brief):
        assert curator.acquire(A_WHILE)
        curator.kill()
    assert locks.lock(f"{name}_long").acquire(timeout=A_MOMENT / 1000) is None
    assert locks.lock(f"{name}_short").acquire()


def test_the_place_of_a_killed_java_waiter_ends_with_its_session(
    zookeeper_server: ZooKeeperServer, java: MakeJava, connect: Connect, name: str
) -> None:
    key, curator, locks = f"{PREFIX}:{name}", java(SHORT_SESSION), connect(turn=0)
    with locks.lock(name):
        curator.tell(f"acquire {A_WHILE}")
        eventually(lambda: len(zookeeper_server.children(key)) == 2, "Java waits")
        curator.kill()
    with locks.lock(name):
        assert not any(map(is_javas, zookeeper_server.children(key)))


def test_without_turns_java_gets_a_fifth_of_the_grants_that_it_waits_for(
    zookeeper_server: ZooKeeperServer, java: MakeJava, connect: Connect, name: str
) -> None:
    """Python's grants count if a node of Java waited meanwhile. So it does not matter how fast Java asks."""
    grants, threads, key = 40, 8, f"{PREFIX}:{name}"
    curator, locks = java(), connect(turn=0)
    meanwhile: Counter[str] = Counter()
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            with locks.lock(name):
                meanwhile.update(node for node in zookeeper_server.children(key) if is_javas(node))

    with ThreadPoolExecutor(threads) as pool:
        try:
            with locks.lock(name):
                curator.tell(f"loop {grants}")
                eventually(lambda: len(zookeeper_server.children(key)) == 2, "Java waits")
                jobs = [pool.submit(take) for _ in range(threads)]
                wait_for_waiters(locks, threads)
            assert curator.answer() == "looped"
        finally:
            over.set()
    for job in jobs:
        job.result()
    assert meanwhile, "Java never waited"
    assert grants >= (grants + meanwhile.total()) / 5
