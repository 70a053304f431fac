"""A slot moves to another node while its lock is held, waited for and sold under."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from distlock import clock
from loadtest.servers.redis_cluster import ClusterNode, RedisCluster
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.redis_server import eventually
from tests.stored import hold_key
from tests.topologies.cluster.contender import MakeContender, ask, some_key
from tests.topologies.rush import Rush, two_instances

__all__ = ["database", "stock"]

STOCK, MOVES, ENOUGH = 300, 5, 20


@pytest.mark.fault("F24")
def test_a_hold_and_its_line_move_along(cluster: RedisCluster, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(cluster.url), contender(cluster.url)
    first, second = ask(key), ask(key)
    number = one.hold(first).number
    two.queue(second)
    cluster.move(key)
    assert one.renew([first]) == [True]
    assert one.release(first)
    assert two.until_held(second).number > number
    assert two.release(second)


def take_over(cluster: RedisCluster, heir: ClusterNode, former: ClusterNode) -> None:
    def is_known(node: ClusterNode) -> bool:
        return heir.port in {share[2][1] for share in node.tell("CLUSTER", "SLOTS")}

    heir.tell("CLUSTER", "FAILOVER", "TAKEOVER")
    eventually(lambda: all(map(is_known, cluster.nodes)), "all know of it")
    eventually(lambda: not former.is_primary() and former.replicates(), "the former primary follows")


def listeners() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "distlock-redis-listener"}


@pytest.mark.fault("F23")
def test_who_is_no_primary_any_more_and_breaks_off_is_not_listened_to(
    cluster: RedisCluster, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(cluster.url), contender(cluster.url)
    former = cluster.node_of(key)
    heir = cluster.replicas[cluster.primaries.index(former)]
    one.hold(ask(key))
    others = listeners()
    two.queue(ask(key))
    (listener,) = listeners() - others

    def has_ended() -> bool:
        two.locked(key)
        return not listener.is_alive()

    take_over(cluster, heir, former)
    try:
        two.locked(key)
        former.tell("CLIENT", "KILL", "TYPE", "pubsub")
        eventually(has_ended, "its listener has ended")
    finally:
        take_over(cluster, former, heir)


def test_who_finds_another_primary_where_no_thread_can_be_started_goes_on(
    cluster: RedisCluster, contender: MakeContender
) -> None:
    key, one = some_key(), contender(cluster.url)
    mine = ask(key)
    one.hold(mine)
    former = cluster.node_of(key)
    heir = cluster.replicas[cluster.primaries.index(former)]
    # No address space has room for such a stack.
    before = threading.stack_size(1 << 46)
    try:
        take_over(cluster, heir, former)
        one._nodes.outdated.set()
        assert one.renew([mine]) == [True]
    finally:
        threading.stack_size(before)
        take_over(cluster, former, heir)
    assert one.release(mine)


@pytest.fixture(params=["hostname", "unknown-endpoint"])
def nameless(cluster: RedisCluster, request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """A cluster that calls none of its nodes by an address."""
    for node in cluster.nodes:
        node.tell("CONFIG", "SET", "cluster-preferred-endpoint-type", request.param)
    yield cluster
    for node in cluster.nodes:
        node.tell("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


def test_one_without_a_name_is_followed(nameless: RedisCluster, contender: MakeContender) -> None:
    key, one = some_key(), contender(nameless.url)
    mine = ask(key)
    one.hold(mine)
    nameless.move(key)
    assert one.renew([mine]) == [True]
    assert one.release(mine)


@pytest.mark.fault("F24")
def test_a_release_whose_answer_nobody_awaits_is_made_on_the_other_node(
    cluster: RedisCluster, contender: MakeContender
) -> None:
    key, one = some_key(), contender(cluster.url)
    for moves in (False, True):
        mine = ask(key)
        one.hold(mine)
        if moves:
            cluster.move(key)
        told: list[bool | None] = []
        # The first one is awaited: it tells the server the script.
        one.post(mine, told.append)
        while not one.settle():
            pass
        assert not one.locked(key)
        assert told == []


def test_the_next_request_finds_it_made_there(cluster: RedisCluster, contender: MakeContender) -> None:
    key, one = some_key(), contender(cluster.url)
    # The script is known then, and the next release is sent without being awaited.
    first, second = ask(key), ask(key)
    one.hold(first)
    assert one.release(first)
    one.hold(second)
    cluster.move(key)
    told: list[bool | None] = []
    one.post(second, told.append)
    one.hold(ask(key))
    assert told == []


def test_so_it_is_where_the_node_that_refused_it_is_left(
    cluster: RedisCluster, contender: MakeContender
) -> None:
    one, somewhere = contender(cluster.url), cluster.primaries[0]
    keys = [key for key in (some_key() for _ in range(100)) if cluster.node_of(key) is somewhere][:3]
    for last in (False, True):
        mine = [ask(key) for key in keys]
        for asked in mine:
            one.hold(asked)
        node = one._nodes.known(keys[0])
        assert node is not None
        for key in keys if last else ():
            cluster.move(key)
        told: list[bool | None] = []
        # The first one is awaited: it tells the server the script.
        for asked in mine:
            one.post(asked, told.append)
    one._nodes._close_removed(node)
    look = contender(cluster.url)
    assert not any(look.locked(key) for key in keys)
    assert told == []


@pytest.mark.fault("F24")
def test_while_half_of_its_keys_are_there_a_call_waits(
    cluster: RedisCluster, contender: MakeContender
) -> None:
    key, one = some_key(), contender(cluster.url, io_timeout=20.0)
    first = ask(key)
    one.hold(first)
    with ThreadPoolExecutor(1) as pool, cluster.moving(key):
        renewed = pool.submit(one.renew, [first])
        with pytest.raises(TimeoutError):
            renewed.result(0.1)
    assert renewed.result(20) == [True]
    assert one.release(first)


@pytest.mark.fault("F24", control=True)
def test_a_lock_that_takes_no_key_for_a_free_lock_is_held_on_both_nodes(cluster: RedisCluster) -> None:
    key = some_key()
    plain, source = f"{hold_key(key)}:plain", cluster.node_of(key)
    assert source.tell("SET", plain, "one", "NX")
    with cluster.moving(key):
        [target] = [node for node in cluster.nodes if node.says("CLUSTER NODES", "-<-")]
        # As a client does that was sent on for another key of the slot.
        target.tell("ASKING")
        assert target.tell("SET", plain, "two", "NX")
        assert source.tell("GET", plain) == "one"
        target.tell("ASKING")
        target.tell("DEL", plain)


@pytest.mark.fault("F24")
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_it_moves_in_the_middle_of_a_rush(
    database: str, stock: Stock, cluster: RedisCluster, fence: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(STOCK)
    with started(*two_instances(database, cluster.url, fence)) as instances:
        rush = Rush(instances)
        began = clock.now()
        for moves in range(1, MOVES + 1):
            rush.wait_for(moves * ENOUGH)
            cluster.move("stalled:product_1")
        answers = rush.end()
    with capsys.disabled():
        print(
            f"\nRedis Cluster, a slot moved {MOVES} times: {rush.longest_gap(began):.3f} s without service."
        )
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    # Nothing is lost on the way: the lock alone keeps it exact.
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)
