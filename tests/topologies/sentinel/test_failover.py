"""The primary dies, is replaced while it lives, stands still, or has no successor."""

from __future__ import annotations

import asyncio
import threading

import pytest

import distlock
from distlock.errors import BackendUnavailable
from loadtest.servers.redis_servers import deafen, tell
from tests.backend_class import new_backend
from tests.backends.redis.contender import Contender, ask, some_key
from tests.backends.redis.test_data_loss import TURNS, readers
from tests.redis_server import eventually
from tests.stored import hold_key
from tests.topologies.sentinel.contender import PATIENT, MakeContender
from tests.topologies.sentinel.watched import Calm, client

#: The class of what asks the sentinels of one backend.
SENTINELS = type(new_backend("redis+sentinel://localhost/shop")._sentinels)


@pytest.fixture
def former(watched: Calm) -> int:
    """The port of a primary that is not made a replica by the sentinels when it has been replaced."""
    port = watched.primary()
    assert tell(port, "ACL", "SETUSER", "default", "-replicaof", "-slaveof").startswith("+OK")
    return port


def know(watched: Calm, key: str, waiting: int) -> None:
    """Until each replica has the hold of *key*, and so many that wait."""
    hold, queue = hold_key(key), f"{hold_key(key)}:queue"
    replicas = [client(port) for port in watched.replicas()]
    assert len(replicas) == 2
    eventually(lambda: all(one.exists(hold) for one in replicas), "the hold is replicated")
    eventually(lambda: all(one.llen(queue) == waiting for one in replicas), "the line is replicated")
    for one in replicas:
        one.close()


def connected(port: int) -> int:
    return tell(port, "CLIENT", "LIST").count("name=distlock")


def test_the_holder_and_those_that_wait_go_on_when_the_primary_dies(
    watched: Calm, contender: MakeContender
) -> None:
    key, held, first, second = some_key(), *(ask("x") for _ in range(3))
    for one in (held, first, second):
        one.key = key
    holder, waiter, last = (contender(watched.url) for _ in range(3))
    alone = Contender(f"redis://127.0.0.1:{watched.primary()}", io_timeout=1.0)
    number = holder.hold(held).number
    waiter.queue(first)
    last.queue(second)
    know(watched, key, 2)
    watched.kill_primary()
    assert holder.renew([held]) == [True]
    # The order is what it was.
    last.queue(second)
    assert holder.release(held)
    then = waiter.poll(first).number
    assert then > number
    assert waiter.release(first)
    assert last.poll(second).number > then
    # The control: the same without sentinels.
    with pytest.raises(BackendUnavailable, match="refused"):
        alone.renew([held])
    alone.close()


def test_a_hand_over_is_heard_from_the_new_primary(watched: Calm, contender: MakeContender) -> None:
    holder, waiter = contender(watched.url), contender(watched.url)
    held = ask()
    waiting = ask(held.key)
    holder.hold(held)
    waiter.queue(waiting)
    doubts = waiter.sink.missed
    watched.kill_primary()
    # It subscribes by itself, and then those that wait look whether they stand in the line.
    eventually(lambda: waiter.sink.missed > doubts and connected(watched.primary()) >= 1, "it follows")
    eventually(lambda: subscribed(watched.primary(), waiter), "it listens")
    holder.request(held)
    waiter.request(waiting)
    assert holder.release(held)
    assert waiter.sink.wait_for_notification(held.key)


def subscribed(port: int, one: Contender) -> bool:
    return ":1" in tell(port, "PUBSUB", "NUMSUB", f"dl:2:ch:{one.process}")


@pytest.mark.fault("F20")
def test_a_hold_that_was_not_replicated_is_lost_and_says_so(watched: Calm) -> None:
    lost = threading.Event()
    # It would renew in three minutes.
    one = distlock.connect(
        watched.url, prefix="x", ttl=600, io_timeout=PATIENT, on_lost=lambda grant, why: lost.set()
    )
    two = distlock.connect(watched.url, prefix="x", io_timeout=PATIENT)
    with one.lock("warm_up"):
        pass
    deafen(watched.primary())
    grant = one.lock("product_1").acquire()
    assert grant is not None
    watched.kill_primary()
    with two.lock("product_1", timeout=PATIENT) as other:
        assert other.fence > grant.fence
        assert lost.wait(PATIENT)
        assert grant.lost
    one.close()
    two.close()


@pytest.mark.parametrize("releases_before", [0, 1], ids=["awaited", "posted"])
def test_what_was_released_at_the_former_primary_is_not_held_at_the_new_one(
    watched: Calm, releases_before: int
) -> None:
    one, two = (distlock.connect(watched.url, prefix="x", ttl=600, io_timeout=PATIENT) for _ in range(2))
    for _ in range(releases_before):
        with one.lock("warm_up"):
            pass
    grant = one.lock("product_1").acquire()
    assert grant is not None
    know(watched, "x:product_1", 0)
    primary = watched.primary()
    deafen(primary)
    grant.release()
    eventually(lambda: not two.lock("product_1").locked(), "the primary has heard of it")
    watched.kill_primary()
    eventually(lambda: watched.primary() != primary, "there is another one")
    # Its replicas have not, and it would be held for ten minutes.
    with two.lock("product_1", timeout=PATIENT):
        pass
    one.close()
    two.close()


def test_threads_and_tasks_that_wait_get_the_lock_after_a_failover(watched: Calm) -> None:
    holder, threads, tasks = (
        distlock.connect(watched.url, prefix="y", timeout=PATIENT, io_timeout=PATIENT) for _ in range(3)
    )
    grant = holder.lock("product_1").acquire()
    assert grant is not None
    numbers: list[int] = []

    def buy() -> None:
        with threads.lock("product_1") as mine:
            numbers.append(mine.fence.number)

    async def buy_all() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(buy_one())

    async def buy_one() -> None:
        async with tasks.lock("product_1") as mine:
            numbers.append(mine.fence.number)

    buyers = [threading.Thread(target=buy) for _ in range(3)]
    buyers.append(threading.Thread(target=lambda: asyncio.run(buy_all())))
    for buyer in buyers:
        buyer.start()
    queue = f"{hold_key('y:product_1')}:queue"
    primary = client(watched.primary())
    eventually(lambda: primary.llen(queue) == 2, "both processes stand in line")
    primary.close()
    know(watched, "y:product_1", 2)
    watched.kill_primary()
    grant.release()
    for buyer in buyers:
        buyer.join(PATIENT)
    assert len(numbers) == 6
    assert numbers == sorted(numbers)
    assert numbers[0] > grant.fence.number
    for one in (holder, threads, tasks):
        one.close()


@pytest.mark.fault("F22")
def test_a_former_primary_that_lives_is_left_by_all_at_once(
    watched: Calm, contender: MakeContender, former: int
) -> None:
    one, held, waiting = contender(watched.url), ask(), ask()
    waiting.key = held.key
    one.hold(held)
    two = contender(watched.url)
    two.queue(waiting)
    know(watched, held.key, 1)
    assert connected(former) == 3
    watched.fail_over()
    # Nobody asks for anything meanwhile. The former primary would serve them for ever.
    eventually(lambda: connected(former) == 0, "all have left")
    assert "master" in tell(former, "ROLE")
    assert watched.primary() != former
    assert one.sink.missed
    assert one.renew([held]) == [True]
    assert connected(watched.primary()) >= 1


@pytest.mark.fault("F21")
def test_numbers_grow_where_a_former_primary_went_on_granting_for_a_while(
    watched: Calm, contender: MakeContender, former: int
) -> None:
    key, after = some_key(), contender(watched.url)
    one, two = (Contender(f"redis://127.0.0.1:{former}") for _ in range(2))
    readers(one, two, key)
    watched.fail_over()
    eventually(lambda: watched.primary() != former, "it is replaced")
    # These do not hear of it, and what they are granted is on no replica.
    before = max(readers(one, two, key) for _ in range(TURNS))
    assert after.poll(ask(key)).number > before
    one.close()
    two.close()


@pytest.mark.fault("F11")
def test_a_primary_that_stands_still_is_left_and_no_longer_asked_when_it_goes_on(
    watched: Calm, contender: MakeContender, former: int
) -> None:
    one, held = contender(watched.url), ask()
    one.hold(held)
    know(watched, held.key, 0)
    watched.freeze_primary()
    answers: list[list[bool]] = []
    renewal = threading.Thread(target=lambda: answers.append(one.renew([held])))
    renewal.start()
    # It was sent to the one that stands still, and is answered by its successor.
    renewal.join(PATIENT)
    assert answers == [[True]]
    watched.servers[former].thaw()
    eventually(lambda: "master" in tell(former, "ROLE"), "it goes on, as a primary")
    other = ask(held.key)
    contender(watched.url).queue(other)
    assert connected(former) == 0


def test_a_server_that_has_become_a_replica_is_left_where_nothing_was_heard(
    watched: Calm, contender: MakeContender, former: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SENTINELS, "_receive", lambda self, payload: None)
    one, held = contender(watched.url), ask()
    one.hold(held)
    know(watched, held.key, 0)
    watched.fail_over()
    eventually(lambda: watched.primary() != former, "it is replaced")
    # The control of the test above: a client that hears nothing stays.
    assert connected(former) == 1
    assert one.renew([held]) == [True]
    assert connected(former) == 1
    tell(former, "ACL", "SETUSER", "default", "+replicaof")
    assert tell(former, "REPLICAOF", "127.0.0.1", str(watched.primary())).startswith("+OK")
    assert connected(former) == 1
    assert one.renew([held]) == [True]
    assert connected(former) == 0


@pytest.mark.fault("F21")
def test_a_primary_that_its_replicas_have_left_serves_nobody_with_min_replicas_to_write(
    watched: Calm, contender: MakeContender, former: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SENTINELS, "_receive", lambda self, payload: None)
    one, held = contender(watched.url), ask()
    alone = Contender(f"redis://127.0.0.1:{former}")
    one.hold(held)
    know(watched, held.key, 0)
    assert tell(former, "CONFIG", "SET", "min-replicas-to-write", "1").startswith("+OK")
    watched.fail_over()
    eventually(lambda: "connected_slaves:0" in tell(former, "INFO", "replication"), "they have left it")
    # It refuses, and so the sentinels are asked, though nothing was heard from them.
    assert one.renew([held]) == [True]
    assert connected(former) == 0
    with pytest.raises(BackendUnavailable, match="NOREPLICAS"):
        alone.request(ask())
    alone.close()


def test_tasks_leave_a_server_that_has_become_a_replica(
    watched: Calm, former: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SENTINELS, "_receive", lambda self, payload: None)
    locks = distlock.connect(watched.url, prefix="z", timeout=PATIENT, io_timeout=PATIENT)

    async def buy() -> None:
        async with locks.lock("product_1"):
            pass
        await asyncio.to_thread(demote)
        # The first goes on the connection that is there, and a thread repeats it elsewhere.
        async with locks.lock("product_1"), locks.lock("product_2"):
            assert connected(former) == 0

    def demote() -> None:
        watched.fail_over()
        eventually(lambda: watched.primary() != former, "it is replaced")
        tell(former, "ACL", "SETUSER", "default", "+replicaof")
        assert tell(former, "REPLICAOF", "127.0.0.1", str(watched.primary())).startswith("+OK")
        assert connected(former) == 1

    asyncio.run(buy())
    locks.close()


def test_without_a_majority_of_sentinels_there_is_no_failover_and_the_error_says_why(
    watched: Calm, contender: MakeContender
) -> None:
    *others, _ = watched.sentinels.values()
    one, impatient = contender(watched.url), contender(watched.url, io_timeout=0.4)
    for sentinel in others:
        sentinel.kill()
    held = ask()
    one.hold(held)
    assert one.locked(held.key)
    watched.kill_primary()
    said: list[str] = []

    def says_why() -> bool:
        with pytest.raises(BackendUnavailable) as told:
            impatient.locked(held.key)
        said.append(str(told.value))
        return "counts it as down" in said[-1]

    eventually(says_why, "the sentinel that is left has noticed")
    assert "see SENTINEL CKQUORUM" in said[-1]
    assert "refused" in said[-1]
