"""What travels on a connection: requests at once, whole and in order, and each with its reply."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError
from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, SetData

from distlock import clock
from distlock.backends.zookeeper import waiting
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.client import TlsSocket, ZooKeeperClient
from distlock.backends.zookeeper.sans_io import Deadline, TaskCall, ZooKeeperReply
from distlock.backends.zookeeper.waiting import Watcher
from distlock.errors import BackendUnavailable
from distlock.signal_safety import is_calling
from tests.backends.zookeeper.contender import LONG, Contender, MakeContender, ask, permit, some_key
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


# -- replies ----------------------------------------------------------------------------------------


#: Longer than any of it takes on a busy machine, seconds.
CEILING = 60.0


def test_all_that_wait_are_woken() -> None:
    answer = ZooKeeperReply()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(answer.wait, CEILING) for _ in range(3)]
        answer.set("said")
        assert [one.result(CEILING) for one in waiting] == [True] * 3
    assert answer.get() == "said"


def test_one_that_does_not_come_is_waited_for_no_longer_and_counts_as_lost() -> None:
    answer = ZooKeeperReply()
    assert not answer.wait(0.01)
    assert not answer.wait(-1.0)
    with pytest.raises(OperationTimeoutError):
        answer.get()


def test_the_first_counts_and_is_told_once_in_the_thread_that_reads_it() -> None:
    told: list[tuple[int, ZooKeeperReply]] = []
    answer = ZooKeeperReply(lambda one: told.append((threading.get_ident(), one)))
    answer.set_exception(NoNodeError())
    answer.set_exception(ConnectionLoss())
    assert answer.ready()
    assert told == [(threading.get_ident(), answer)]
    with pytest.raises(NoNodeError):
        answer.get()


# -- one thread at a time in OpenSSL ----------------------------------------------------------------


#: For how long one thread stays in there, so that another could come in, seconds.
A_WHILE = 0.2


class Narrow:
    """In the place of an `ssl.SSLSocket`: notices a second thread.

    OpenSSL is for one thread at a time: https://docs.openssl.org/master/man7/openssl-threads/.
    """

    def __init__(self) -> None:
        self.entered, self.crowded = threading.Event(), threading.Event()
        self._taken = False

    def send(self, data: bytes) -> int:
        self._stay()
        return len(data)

    def recv(self, size: int) -> bytes:
        self._stay()
        return b"x" * size

    def _stay(self) -> None:
        if self._taken:
            self.crowded.set()
        self._taken = True
        self.entered.set()
        self.crowded.wait(A_WHILE)
        self._taken = False


@pytest.mark.parametrize(("first", "second"), [("send", "recv"), ("recv", "send"), ("send", "send")])
def test_threads_that_read_and_write_at_once_are_let_in_one_by_one(first: str, second: str) -> None:
    narrow = Narrow()
    socket = TlsSocket(cast(Any, narrow))
    calls = {"send": lambda: socket.send(b"x"), "recv": lambda: socket.recv(1)}
    thread = threading.Thread(target=calls[first])
    thread.start()
    assert narrow.entered.wait(60)
    calls[second]()
    thread.join(60)
    assert not narrow.crowded.is_set()


def test_what_one_that_left_had_asked_lets_nobody_else_in(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    one.hold(permit(key, 1))
    one.queue(left := permit(key, 1))
    node, waiting = one.line().nodes[left.token], one.line()._waiters
    assert node.watch is not None
    assert one.cancel(left) is False
    one.queue(mine := permit(key, 1))
    # It watches the same. The answer, which doesn't have the one that left, may come as late as this.
    answer = ZooKeeperReply(lambda answer: waiting._answered(node, node.watch, answer))  # type: ignore[arg-type]
    answer.set((zookeeper_server.children(key), None))
    one.queue(mine)


def test_what_is_dropped_before_it_begins_sends_nothing_and_says_so(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(zookeeper_server.url, io_timeout=CEILING)
    one.connect()
    session = one.line(LONG).session

    async def main() -> None:
        asked = TaskCall(clock.now() + LONG, session.asking([], Deadline(LONG)))
        asked.drop()
        asked.begin()
        with pytest.raises(BackendUnavailable, match="given up"):
            await asked

    asyncio.run(main())


def sent_by(one: Contender, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of its requests, from now on."""
    wire, kinds = one.line(LONG).session.client, list[str]()
    submit = wire.submit

    def noting(requests: Any, *told: Any) -> Any:
        kinds.extend(type(request).__name__ for request in requests if getattr(request, "path", "") != "/")
        return submit(requests, *told)

    monkeypatch.setattr(wire, "submit", noting)
    return kinds


@pytest.mark.parametrize("late", [False, True])
def test_the_next_one_has_it_before_it_asks_unless_that_is_long_ago(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(waiting, "_FRESH", -1.0 if late else CEILING)
    key = some_key()
    one, two, three = (contender(zookeeper_server.url, ack_window=0.02) for _ in range(3))
    first, second, third = ask(key), replace(ask(key), prompt=True), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    sent = sent_by(two, monkeypatch)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    path = two.line().nodes[second.token].path
    assert zookeeper_server.admin.exists(path).version == 1
    # It is not sent away.
    for _ in range(5):
        assert three.queue(third).poll > 0.5
    taken = list(sent)
    assert taken == ["SetData", "GetChildren"]
    two.hold(second)
    assert sent == taken * (2 if late else 1)
    assert two.release(second)
    three.until_held(third)


# -- what a URL says of a connection ----------------------------------------------------------------


def test_tls_is_spoken_where_the_scheme_says_so() -> None:
    address = ZooKeeperAddress("ZooKeepers://zk1:2281/shop?ssl_password=s3cr3t&ssl_certfile=/a%20b.pem")
    assert address.tls is not None
    assert address.tls.password == "s3cr3t"
    assert ZooKeeperAddress("zookeeper://zk1").tls is None


def test_a_login_is_used() -> None:
    assert ZooKeeperAddress("zookeeper://shop:p%40ss@zk1/shop").auth == [("digest", "shop:p@ss")]
    assert ZooKeeperAddress("zookeeper://zk1").auth == []
