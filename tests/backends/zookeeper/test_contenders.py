"""The line for one lock: which waiters are woken, which are sent away, and what is left of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock.backends.base import Busy
from distlock.testing.waits import engine_of, wait_for_waiters
from tests.backends.zookeeper.contender import LONG, MakeContender, ask, some_key
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer, running


def test_one_watcher_is_woken_by_a_release(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, before = some_key(), zookeeper_server.watches()
    contenders = [contender(zookeeper_server.url) for _ in range(6)]
    requests = [ask(key) for _ in contenders]
    contenders[0].hold(requests[0])
    for one, mine in zip(contenders[1:], requests[1:], strict=True):
        one.queue(mine)
    # All but the first one's are sent and not awaited.
    eventually(lambda: zookeeper_server.watches() >= before + 5, "they watch")
    watches = zookeeper_server.watches()
    for number in range(5):
        assert contenders[number].release(requests[number])
        assert contenders[number + 1].sink.wait_for_notification(key)
        contenders[number + 1].hold(requests[number + 1])
        # Its watch is used up, and nobody has another one.
        assert zookeeper_server.watches() == watches - number - 1
    assert [len(one.sink.notified_keys) for one in contenders] == [0, 1, 1, 1, 1, 1]


def test_who_asks_again_does_not_watch_again(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first = ask(key)
    one.hold(first)
    for _ in range(20):
        mine = ask(key)
        two.queue(mine)
        two.queue(mine)
        assert two.cancel(mine) is False
    client = two.line().session.client
    assert sum(map(len, client._child_watchers.values())) == 1
    assert zookeeper_server.children(key) == [one.line().nodes[first.token].name]


def test_who_is_second_takes_a_released_lock_in_one_round_trip(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    node = two.line().nodes[second.token]
    assert node.may_enter
    two.hold(second)
    assert zookeeper_server.admin.exists(node.path).version == 1


@pytest.mark.fault("F04")
def test_who_does_not_take_it_is_sent_away_and_learns_of_it(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three, four = (contender(zookeeper_server.url, ack_window=0.1) for _ in range(4))
    requests = first, second, third, fourth = [ask(key) for _ in range(4)]
    one.hold(first)
    for who, mine in zip((two, three, four), requests[1:], strict=True):
        who.queue(mine)
    one.release(first)
    # Not only the next one may do it: that one may hang as well.
    four.until_held(fourth)
    assert len(zookeeper_server.children(key)) == 1
    two.queue(second)
    assert two.renew([second]) == [True] or zookeeper_server.children(key)[1:]
    assert four.release(fourth)
    two.until_held(second)
    three.queue(third)


def test_who_has_taken_it_is_not_sent_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url, ack_window=0.02) for _ in range(3))
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    one.release(first)
    two.hold(second)
    for _ in range(20):
        assert three.queue(third).poll > 0.5
    assert two.renew([second]) == [True]


def test_who_was_first_from_the_beginning_is_not_sent_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = (
        some_key(),
        contender(zookeeper_server.url),
        contender(zookeeper_server.url, ack_window=0.02),
    )
    first, second = ask(key), ask(key)
    one.hold(first)
    for _ in range(20):
        assert two.queue(second).poll > 0.5
    assert one.renew([first]) == [True]


@pytest.mark.parametrize("crowded", [False, True])
def test_who_comes_in_the_moment_of_a_hand_over_does_not_take_the_next_one_for_the_holder(
    zookeeper_server: ZooKeeperServer,
    contender: MakeContender,
    monkeypatch: pytest.MonkeyPatch,
    crowded: bool,
) -> None:
    key = some_key()
    one, two, three, four = (contender(zookeeper_server.url, ack_window=0.1) for _ in range(4))
    first, second, third, fourth = ask(key), ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.connect()
    session = three.line().session
    ask_at_once = session.ask

    def and_then_it_is_handed_off(requests: Sequence[Any], *more: Any) -> Generator[Any, Any, list[Any]]:
        monkeypatch.undo()
        *looks, create = requests
        answers = ask_at_once(looks, *more)
        if crowded:
            four.queue(fourth)
        answers += ask_at_once([create], *more)
        assert one.release(first)
        return answers
        yield

    monkeypatch.setattr(session, "exchanging", and_then_it_is_handed_off)
    three.queue(third)
    # The next one hangs: it does not take what it was handed.
    left = 1 + crowded

    def sent_away() -> bool:
        return three.request(third) != Busy() and len(zookeeper_server.children(key)) == left

    # Long before what it does not care for lapses.
    eventually(sent_away, "it is sent away", patience=LONG / 3)


@pytest.mark.parametrize("held", [False, True])
def test_who_comes_right_behind_one_that_found_the_lock_free_waits_and_does_not_send_it_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url, ack_window=0.02) for _ in range(3))
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    assert held or one.release(first)
    three.connect()
    session = three.line().session
    ask_at_once = session.ask

    def with_others_in_between(requests: Sequence[Any], *more: Any) -> Generator[Any, Any, list[Any]]:
        monkeypatch.undo()
        *looks, create = requests
        answers = ask_at_once(looks, *more)
        assert one.release(first) is held
        two.hold(second)
        return answers + ask_at_once([create], *more)
        yield

    monkeypatch.setattr(session, "exchanging", with_others_in_between)
    for _ in range(20):
        assert three.queue(third).poll > 0.5
    assert two.renew([second]) == [True]
    assert two.release(second)
    three.until_held(third)


def test_who_does_not_want_to_wait_leaves_no_node(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    one.hold(ask(key))
    assert two.request(ask(key, wait=False)) == Busy()
    assert len(zookeeper_server.children(key)) == 1


@pytest.mark.attack("A39")
def test_a_renewal_of_a_node_that_somebody_deleted_says_so(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, first, second = contender(zookeeper_server.url), ask(), ask()
    one.hold(first)
    one.hold(second)
    zookeeper_server.admin.delete(one.line().nodes[first.token].path)
    assert one.renew([first, second]) == [False, True]
    assert one.release(first) is False


def test_two_clients_that_never_stop_asking_take_turns(zookeeper_server: ZooKeeperServer) -> None:
    clients = [distlock.connect(zookeeper_server.url, prefix="turns", timeout=20) for _ in range(2)]
    fences: list[tuple[int, int]] = []

    def work(client: distlock.Locks) -> None:
        for _ in range(100):
            with client.lock("hot") as grant:
                fences.append(grant.fence)

    try:
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(work, client) for client in clients * 4]:
                future.result()
    finally:
        for client in clients:
            client.close()
    assert len(fences) == 800
    assert fences == sorted(set(fences))


@pytest.mark.attack("A18")
def test_nodes_of_unused_locks_go_at_once_when_there_are_many_and_at_close_at_the_latest(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, prefix = contender(zookeeper_server.url), some_key()

    def left() -> int:
        return sum(name.startswith(prefix.replace(":", "%3A")) for name in zookeeper_server.locks())

    for number in range(1100):
        mine = ask(f"{prefix}_{number}")
        one.hold(mine)
        one.release(mine)
    assert left() <= 1001
    one.close()
    eventually(lambda: left() == 0, "all are gone")


def test_a_lock_whose_node_was_removed_is_made_again(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    for _ in range(3):
        mine = ask(key)
        one.hold(mine)
        path = one.line().nodes[mine.token].parent
        assert one.release(mine)
        zookeeper_server.admin.delete(path)


@pytest.fixture
def diligent_server() -> Iterator[ZooKeeperServer]:
    """A server that looks for empty containers all the time."""
    yield from running("-Dznode.container.checkIntervalMs=50")


def test_who_cannot_say_goodbye_leaves_the_nodes_to_the_server(
    diligent_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(diligent_server.url), ask()
    one.hold(mine)
    assert one.release(mine)
    one.line().lock_nodes.clear()
    eventually(lambda: not diligent_server.locks(), "the server has removed it")


def test_waiters_of_one_process_are_one_contender(zookeeper_server: ZooKeeperServer) -> None:
    clients = [distlock.connect(zookeeper_server.url, prefix="rooms", timeout=20) for _ in range(2)]
    try:
        with clients[0].lock("one"), ThreadPoolExecutor(10) as pool:
            futures = [pool.submit(clients[1].lock("one").acquire) for _ in range(10)]
            wait_for_waiters(clients[1], 10)
            eventually(lambda: len(zookeeper_server.children("rooms:one")) == 2, "it stands in line")
            engine_of(clients[1]).close()
            for future in futures:
                assert isinstance(future.exception(20), distlock.BackendUnavailable)
        eventually(lambda: not zookeeper_server.children("rooms:one"), "nobody is in line")
    finally:
        for client in clients:
            client.close()
