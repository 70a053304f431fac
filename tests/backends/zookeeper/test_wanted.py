"""A request for a lock stands in the node of the hold, beside what else that says, as Curator writes it."""

from __future__ import annotations

import math

from tests.backends.zookeeper.contender import MakeContender, ask, reader, some_key
from tests.redis_server import eventually
from tests.stored import lock_path
from tests.zookeeper_server import ZooKeeperServer


def test_a_holder_that_has_renewed_is_told_at_once_and_only_once_for_each_word(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    mine = ask()
    one.hold(mine)
    assert one.renew([mine]) == [True]
    assert two.request_release(mine.key)
    eventually(lambda: one.sink.requests == [(mine.key, mine.token)], "the watch tells it")
    assert two.request_release(mine.key)
    path = one.line().nodes[mine.token].path
    assert zookeeper_server.admin.get(path)[0].count(b"wanted") == 1
    assert one.sink.losses == []
    assert one.release(mine)


def test_a_look_at_the_lock_still_tells_its_lease(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    mine = ask()
    one.hold(mine)
    before = two.inspect(mine.key).remaining
    assert two.request_release(mine.key)
    assert two.inspect(mine.key).remaining == before < math.inf


def test_neither_a_downgrade_nor_a_request_takes_the_other_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    for downgrade_first in (True, False):
        mine = ask()
        one.hold(mine)
        steps = [lambda mine=mine: one.downgrade(mine), lambda mine=mine: two.request_release(mine.key)]
        for step in steps if downgrade_first else reversed(steps):
            assert step()
        assert one.renew([mine]) == [True]
        assert (mine.key, mine.token) in one.sink.requests
        path = one.line().nodes[mine.token].path
        assert zookeeper_server.admin.get(path)[0].endswith(b" reading")
        two.hold(reader(mine.key))


def test_curators_word_is_obeyed(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    one = contender(zookeeper_server.url)
    mine = ask()
    one.hold(mine)
    zookeeper_server.admin.set(one.line().nodes[mine.token].path, b"__REVOKE__")
    assert one.renew([mine]) == [True]
    assert one.sink.requests == [(mine.key, mine.token)]


def test_a_contender_of_curator_is_asked_in_its_own_words(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    admin, parent = zookeeper_server.admin, lock_path(one.line()._base, key)
    name = f"{parent}/_c_0a1b2c3d-0a1b-4c2d-8e3f-0a1b2c3d4e5f-lock-"
    path = admin.create(name, b"192.0.2.1", ephemeral=True, sequence=True, makepath=True)
    assert one.request_release(key)
    assert admin.get(path)[0] == b"__REVOKE__"
    admin.delete(path)
    assert not one.request_release(key)
