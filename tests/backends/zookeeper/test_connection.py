"""Requests that callers send by themselves: at once, whole, in order, and none without an answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, SetData

from distlock.backends.zookeeper.client import ZooKeeperClient
from distlock.backends.zookeeper.exchanges import ZooKeeperReply
from distlock.backends.zookeeper.waiting import Watcher
from distlock.reentrance import is_calling
from tests.backends.zookeeper.contender import LONG, MakeContender
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer

#: Longer than any of it takes on a busy machine, seconds.
CEILING = 60.0
#: Servers take a megabyte.
LARGE = b"x" * 900_000


def wire_of(url: str, contender: MakeContender) -> ZooKeeperClient:
    one = contender(url, io_timeout=CEILING)
    one.connect()
    return one.line(LONG).session.client


def said(wire: ZooKeeperClient, *requests: Any) -> list[Any]:
    answers = wire.submit(requests)
    assert answers[-1].wait(CEILING)
    return [answer.get() for answer in answers]


def test_a_caller_sends_also_while_the_thread_that_reads_is_busy(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    wire = wire_of(zookeeper_server.url, contender)
    busy, go_on = threading.Event(), threading.Event()

    def be_busy(*_: str) -> None:
        busy.set()
        go_on.wait(CEILING)

    said(wire, Create("/watched", b"", wire.acl, 0), GetChildren("/watched", Watcher(be_busy, "")))
    zookeeper_server.admin.delete("/watched")
    assert busy.wait(CEILING)
    try:
        answers = wire.submit([Create("/by_itself", b"", wire.acl, 0)])
        eventually(lambda: zookeeper_server.admin.exists("/by_itself"), "the server has it")
        assert not answers[0].ready()
    finally:
        go_on.set()
    said(wire, Delete("/by_itself", -1))


def test_what_the_socket_does_not_take_at_once_is_sent_later_whole_and_in_order(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    wire = wire_of(own_zookeeper.url, contender)
    said(wire, Create("/large", b"", wire.acl, 0))
    answers: list[ZooKeeperReply] = []
    own_zookeeper.pause()
    try:
        for _ in range(20):
            answers += wire.submit([SetData("/large", LARGE, -1), Exists("/large", None)])
    finally:
        own_zookeeper.resume()
    assert answers[-1].wait(CEILING)
    assert [answer.get().version for answer in answers] == [number for n in range(1, 21) for number in (n, n)]
    # And then by themselves again.
    assert wire._connection._open


def test_a_caller_that_is_interrupted_in_the_middle_leaves_nobody_with_a_wrong_answer(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = wire_of(zookeeper_server.url, contender)
    before, number = wire.session_id, wire._connection._number

    def interrupted(requests: Sequence[Any], bodies: Sequence[bytes]) -> bytes:
        number(requests, bodies)
        raise KeyboardInterrupt

    monkeypatch.setattr(wire._connection, "_number", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wire.submit([Exists("/", None)])
    monkeypatch.undo()
    # The connection goes, and the session stays.
    eventually(lambda: not wire._connection.client._pending, "nothing is awaited that was not sent")
    (answer,) = wire.submit([Exists("/", None)])
    assert answer.wait(CEILING)
    try:
        assert answer.get().czxid == 0
    except ConnectionLoss:
        assert wire.wait(CEILING)
        assert said(wire, Exists("/", None))[0].czxid == 0
    assert wire.session_id == before


def test_a_finaliser_in_the_thread_that_reads_is_refused_and_does_not_wait_for_itself(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    wire, inside = wire_of(zookeeper_server.url, contender), list[bool]()
    (answer,) = wire.submit([Exists("/", None)], lambda _: inside.append(is_calling()))
    assert answer.wait(CEILING)
    eventually(lambda: inside == [True], "it was told")
