"""What an ensemble shows of its locks, and breaking one there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest
from distlock.backends.inspectable import MOST_SHOWN, SeenProcess, StatusRow
from tests.backends.zookeeper.contender import LONG, MakeContender, ask, permit, reader, some_key
from tests.redis_server import eventually
from tests.stored import FOLDER, lock_path
from tests.zookeeper_server import CHROOT, ZooKeeperServer

PROCESSES = f"{CHROOT}/{FOLDER}/%processes"


def said(server: ZooKeeperServer, process: str) -> list[str]:
    """The nodes in which *process* speaks."""
    if server.admin.exists(PROCESSES) is None:
        return []
    return [name for name in server.admin.get_children(PROCESSES) if name.startswith(process)]


def test_the_broken_process_is_told_at_once_once_it_has_renewed(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    mine = ask(key)
    held = one.hold(mine)
    watches = zookeeper_server.watches()
    assert one.renew([mine]) == [True]
    assert one.renew([mine]) == [True]
    assert zookeeper_server.watches() == watches + 1
    assert two.break_hold(key, held.number)
    eventually(lambda: one.sink.losses == [(key, mine.token)], "it is told")
    assert one.line().nodes == {}
    assert zookeeper_server.watches() == watches
    assert not one.release(mine)


def test_who_releases_is_not_told_of_a_loss(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine, barrier = contender(zookeeper_server.url), ask(), ask()
    one.hold(mine)
    assert one.renew([mine]) == [True]
    watches = zookeeper_server.watches()
    assert one.release(mine)
    eventually(lambda: zookeeper_server.watches() == watches - 1, "the watch has told of the release")
    # What kazoo's thread is told comes in order: this loss comes after the other would have come.
    held = one.hold(barrier)
    one.renew([barrier])
    assert contender(zookeeper_server.url).break_hold(barrier.key, held.number)
    eventually(lambda: bool(one.sink.losses), "the loss of another lock is told")
    assert one.sink.losses == [(barrier.key, barrier.token)]


def test_the_end_of_an_earlier_node_is_no_loss_of_the_next(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask()
    one.hold(mine)
    path = one.line().nodes[mine.token].path
    one.release(mine)
    one.hold(mine)
    # The watch may tell as late as this.
    one.line().broken(mine.token, path)
    assert (one.renew([mine]), one.sink.losses) == ([True], [])


def test_a_java_program_in_the_line_is_shown_by_its_node_and_can_be_broken(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    parent = lock_path(f"{CHROOT}/{FOLDER}", key)
    zookeeper_server.admin.ensure_path(parent)
    path = zookeeper_server.admin.create(
        f"{parent}/_c_{uuid.uuid4()}-lock-", b"10.0.0.3", ephemeral=True, sequence=True
    )
    one.queue(ask(key))
    sight = one.inspect(key)
    assert sight.holder == SeenProcess(path.rpartition("/")[2])
    # The token does not begin with its process here, so nothing of it is shown.
    assert (sight.queue, sight.remaining) == ([SeenProcess("")], float("inf"))
    assert one.break_hold(key, sight.number)
    assert zookeeper_server.admin.exists(path) is None


def test_of_a_long_line_the_beginning_is_shown(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    parent = lock_path(f"{CHROOT}/{FOLDER}", key)
    zookeeper_server.admin.ensure_path(parent)
    for _ in range(MOST_SHOWN + 5):
        token = one.process + uuid.uuid4().hex
        zookeeper_server.admin.create(f"{parent}/_c_{token}-lock-", ephemeral=True, sequence=True)
    sight = one.inspect(key)
    assert sight.holder == SeenProcess(one.process)
    assert (len(sight.queue), sight.waiting) == (MOST_SHOWN, MOST_SHOWN + 4)
    zookeeper_server.admin.delete(parent, recursive=True)


def test_what_is_not_said_again_is_forgotten_although_the_session_lives(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    one.hold(ask(ttl=1.0))
    assert not one.announce("web1", 1, [StatusRow(key, "", 1e9)], [], 0.1)
    eventually(lambda: not said(zookeeper_server, one.process), "it is forgotten")
    assert not one.announce("web1", 1, [], [], LONG), "all of it has to be said again"


def test_with_its_session_goes_what_a_process_has_said(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    one.hold(ask(key))
    row = StatusRow(key, "", 1e9)
    assert not one.announce("web1", 1, [row], [], LONG)
    assert one.announce("web1", 1, [row], [], LONG)
    one.expire(f"127.0.0.1:{zookeeper_server.port}")
    eventually(lambda: not said(zookeeper_server, one.process), "it went with the session")
    assert not one.announce("web1", 1, [row], [], LONG)
    assert list(one.announced(key)) == [SeenProcess(one.process, "web1", 1, row)]


def test_a_process_with_very_many_keys_says_some_of_them_and_takes_little_room(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), "test:many"
    rows = [StatusRow(f"{key}_{number}", "", 1e9) for number in range(6000)]
    one.announce("web1", 1, rows, [], LONG)
    assert len(list(one.announced(key))) == 4000
    assert len(said(zookeeper_server, one.process)) == 33
    # The others are told when there is room.
    one.announce("web1", 1, [], [row.key for row in rows[:5900]], LONG)
    assert {seen.row.key for seen in one.announced(key) if seen.row} == {row.key for row in rows[5900:]}


def test_a_lock_cannot_be_called_as_the_folder_is(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(zookeeper_server.url)
    one.announce("web1", 1, [StatusRow("x", "", 1e9)], [], LONG)
    one.hold(ask("%processes"))
    assert len(said(zookeeper_server, one.process)) == 2
    assert len(zookeeper_server.children("%processes")) == 1


@pytest.mark.parametrize("wants", [ask, reader, partial(permit, limit=3)], ids=["lock", "read", "permit"])
def test_a_pair_of_calls_asks_as_often_as_ever(
    zookeeper_server: ZooKeeperServer,
    contender: MakeContender,
    monkeypatch: pytest.MonkeyPatch,
    wants: Callable[[str], LockRequest],
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    one.hold(first := wants(key))
    one.release(first)
    session, sent = one.line().session, list[Any]()
    submit = session.client.submit
    monkeypatch.setattr(session.client, "submit", lambda some: sent.extend(some) or submit(some))
    for number in range(3):
        one.hold(mine := wants(key))
        one.release(mine)
        names = [type(request).__name__ for request in sent if getattr(request, "path", "") != "/"]
        assert names == ["GetChildren2", "Create2", "Delete"] * (number + 1)


def test_readers_and_permits_that_are_in_are_counted_and_those_that_wait_are_listed(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, read, some = contender(zookeeper_server.url), some_key(), some_key()
    for mine in (reader(read), reader(read), permit(some, 3), permit(some, 3, 2)):
        one.hold(mine)
    for mine in (ask(read), reader(read), permit(some, 3)):
        one.queue(mine)
    assert [
        (one.inspect(key).mode, one.inspect(key).others, one.inspect(key).waiting) for key in (read, some)
    ] == [
        (READ, 1, 2),
        (PERMIT, 1, 1),
    ]
    one.hold(writer := ask())
    one.queue(reader(writer.key))
    assert (one.inspect(writer.key).mode, one.inspect(writer.key).others) == (EXCLUSIVE, 0)
    assert one.downgrade(writer)
    sight = one.inspect(writer.key)
    # It is handed the lock, and has not said yet that it reads.
    assert (sight.mode, sight.others, sight.waiting) == (READ, 1, 0)
    assert sight.remaining < LONG * 2, "what its node says is understood"
