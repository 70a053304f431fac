"""Curator, live, on the path of our locks.

Its mutex stands in our line: it keeps out readers and writers, and they it. Its other locks are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import distlock
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, permit, reader, some_key
from tests.backends.zookeeper.curator import Curator
from tests.stored import FOLDER, lock_path
from tests.zookeeper_server import CHROOT, ZooKeeperServer

#: Milliseconds in which it finds out that it has to wait.
A_MOMENT = 300
A_WHILE = 60_000


@pytest.fixture
def key() -> str:
    return some_key()


@pytest.fixture
def curator(zookeeper_server: ZooKeeperServer, java_classes: Path, key: str) -> Iterator[Curator]:
    curator = Curator(java_classes, zookeeper_server, lock_path(f"{CHROOT}/{FOLDER}", key))
    yield curator
    curator.kill()


def test_it_waits_for_writers_and_for_readers_and_they_wait_for_it(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, curator: Curator, key: str
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    one.hold(writer := ask(key))
    assert not curator.acquire(A_MOMENT)
    assert one.downgrade(writer)
    two.hold(reads := reader(key))
    assert not curator.acquire(A_MOMENT), "both read"
    assert one.release(writer)
    assert not curator.acquire(A_MOMENT), "one reads"
    curator.tell(f"acquire {A_WHILE}")
    assert two.release(reads)
    assert curator.answer() == "yes"
    one.queue(reads := reader(key))
    two.queue(writer := ask(key))
    curator.release()
    assert one.sink.wait_for_notification(key)
    assert one.hold(reads).followed
    two.queue(writer)
    assert one.release(reads)
    two.until_held(writer)


def test_among_writers_and_readers_of_both_kinds_no_write_is_lost_and_none_is_read_by_half(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, curator: Curator, key: str, tmp_path: Path
) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        file.write_text("0")
    torn: list[list[str]] = []

    def write(one: Contender) -> None:
        for _ in range(40):
            one.until_held(mine := ask(key))
            number = int(files[0].read_text()) + 1
            for file in files:
                file.write_text(str(number))
            assert one.release(mine)

    def read(one: Contender) -> None:
        for _ in range(40):
            one.until_held(mine := reader(key))
            texts = [file.read_text() for file in files]
            if texts[0] != texts[1]:
                torn.append(texts)
            assert one.release(mine)

    curator.tell(f"write 100 {files[0]} {files[1]}")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(job, contender(zookeeper_server.url)) for job in (write, read, read, read)]
        for job in jobs:
            job.result()
    assert curator.answer() == "written"
    assert [file.read_text() for file in files] == ["140", "140"]
    assert torn == []


@pytest.mark.parametrize("recipe", ["read", "write", "semaphore-mutex", "semaphore"])
def test_its_other_locks_are_refused_by_their_node_whatever_is_asked_for(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, curator: Curator, key: str, recipe: str
) -> None:
    one = contender(zookeeper_server.url)
    curator.use(recipe)
    one.hold(mine := ask(key))
    # It does not see what stands in our line.
    assert curator.acquire(A_WHILE)
    path = lock_path(f"{CHROOT}/{FOLDER}", key)
    assert one.release(mine)
    for refused in (ask(key), ask(key, wait=False), reader(key), permit(key, 5)):
        with pytest.raises(distlock.BackendUnavailable, match=rf"zkCli\.sh deleteall {path}/\S+$") as told:
            one.request(refused)
        child = str(told.value).rpartition("/")[2]
        assert child in zookeeper_server.admin.get_children(path)
        if recipe in ("read", "write"):
            assert f"__{recipe.upper()[:4]}__" in child
        else:
            assert child in ("leases", "locks")
    curator.release()
    # What its semaphores leave behind is as good as one of their leases: nobody can tell.
    for child in zookeeper_server.admin.get_children(path):
        zookeeper_server.admin.delete(f"{path}/{child}", recursive=True)
    one.hold(ask(key))
