"""A grant that counts only when replicas have heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock import clock
from distlock.backends.base import LockRequest
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.backends.redis.sharing import permit, read
from tests.redis_server import PATIENCE, RedisServer, eventually, running
from tests.stored import hold_key

PATIENT = {"replicas": 1, "io_timeout": PATIENCE}
HASTY = {"replicas": 1, "io_timeout": 2.0}
#: A push that comes late is a hand-off all the same, seconds.
WINDOW = 30.0


@pytest.fixture(scope="module")
def primary() -> Iterator[RedisServer]:
    yield from running("--repl-diskless-sync-delay", "0")


@pytest.fixture(scope="module")
def follower(primary: RedisServer) -> Iterator[RedisServer]:
    yield from running("--replicaof", "127.0.0.1", str(primary.port))


@pytest.fixture
def replica(primary: RedisServer, follower: RedisServer) -> Iterator[RedisServer]:
    """It may be paused. Afterwards it goes on."""
    eventually(lambda: follower.client.info("replication")["master_link_status"] == "up", "it follows")
    yield follower
    follower.resume()


def test_it_waits_until_the_replica_has_it(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    one, mine = contender(primary.url, **PATIENT), ask()
    replica.pause()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(one.hold, mine)
        # The control: it has it on the server.
        eventually(lambda: primary.client.exists(hold_key(mine.key)), "it is granted")
        with pytest.raises(TimeoutError):
            held.result(0.1)
        replica.resume()
        assert held.result(PATIENCE).number
    assert replica.client.exists(hold_key(mine.key))


def test_what_too_few_have_heard_of_is_given_back(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(primary.url, **HASTY), contender(primary.url)
    wanted = [ask(), read(), permit()]

    def refused(mine: LockRequest) -> bool:
        with pytest.raises(BackendUnavailable, match=r"0 of 1 replicas .* was given back"):
            one.request(mine)
        return not two.locked(mine.key)

    replica.pause()
    with ThreadPoolExecutor(len(wanted)) as pool:
        assert list(pool.map(refused, wanted)) == [True] * len(wanted)


def test_one_replica_of_two_is_too_few(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    one, mine = contender(primary.url, replicas=2, io_timeout=2.0), ask()
    with pytest.raises(BackendUnavailable, match="1 of 2 replicas"):
        one.request(mine)
    assert not one.locked(mine.key)


def test_an_interrupt_meanwhile_gives_it_back(
    primary: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, mine = contender(primary.url, **PATIENT), ask()

    def interrupted(*_: object) -> int:
        assert primary.client.exists(hold_key(mine.key))
        raise KeyboardInterrupt

    monkeypatch.setattr(type(one._caller), "_count_replicas", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.request(mine)
    assert not one.locked(mine.key)


def test_what_went_over_another_connection_is_waited_for_too(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    """`WAIT` by itself is about what its own connection has seen."""
    one, mine = contender(primary.url, **PATIENT), ask()
    one.hold(ask())
    primary.client.script_flush()
    replica.pause()
    contender(primary.url).hold(mine)
    assert one._caller._count_replicas([mine], clock.now() + 3.0) == 0


def test_a_connection_that_has_died_is_no_obstacle(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    one, mine = contender(primary.url, **PATIENT), ask()
    one.hold(mine)
    primary.client.client_kill_filter(_type="normal", skipme=True)
    one._caller._wait_for_replicas([mine], clock.now() + PATIENCE)
    assert one.locked(mine.key)


def handed_off(
    primary: RedisServer, contender: MakeContender, **options: float
) -> tuple[Contender, object, int]:
    """Somebody with *options* to whom a lock was handed off."""
    one, two = (contender(primary.url, ack_window=WINDOW, **more) for more in ({}, options))
    first = ask()
    second = ask(first.key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(first.key)
    ((_, _, number, _),) = two.sink.hand_offs
    return two, second, number


def test_an_acknowledged_one_is_waited_for_too(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    two, second, number = handed_off(primary, contender, **PATIENT)
    assert two.acknowledge([(second, number)]) == [True]  # type: ignore[list-item]
    assert replica.client.exists(hold_key(second.key))  # type: ignore[attr-defined]


def test_an_acknowledged_one_that_too_few_have_heard_of_is_given_back(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    two, second, number = handed_off(primary, contender, **HASTY)
    replica.pause()
    with pytest.raises(BackendUnavailable, match="0 of 1 replicas"):
        two.acknowledge([(second, number)])  # type: ignore[list-item]
    assert not two.locked(second.key)  # type: ignore[attr-defined]


def test_tasks_wait_for_it_too(primary: RedisServer, replica: RedisServer) -> None:
    patient, hasty = (
        distlock.connect(primary.url, prefix="tasks", timeout=PATIENCE, **options)  # type: ignore[arg-type]
        for options in (PATIENT, HASTY)
    )

    async def take(locks: distlock.Locks) -> None:
        async with locks.lock("product_1"):
            assert replica.client.exists(hold_key("tasks:product_1"))

    async def warm_up() -> None:
        async with hasty.lock("product_2"):
            pass

    asyncio.run(take(patient))
    # What has a connection may ask without a thread.
    asyncio.run(warm_up())
    replica.pause()
    with pytest.raises(BackendUnavailable, match="0 of 1 replicas"):
        asyncio.run(take(hasty))
    patient.close()
    hasty.close()


def test_a_server_that_has_forgotten_its_scripts_is_no_obstacle(
    primary: RedisServer, replica: RedisServer, contender: MakeContender
) -> None:
    one = contender(primary.url, **PATIENT)
    for _ in range(2):
        mine = ask(some_key())
        one.hold(mine)
        assert replica.client.exists(hold_key(mine.key))
        primary.client.script_flush()


def test_a_right_that_is_missing_is_named(primary: RedisServer, contender: MakeContender) -> None:
    primary.tell("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-wait")
    one = contender(primary.url.replace("://", "://shop:secret@"), **HASTY)
    mine = ask()
    with pytest.raises(BackendUnavailable, match=r"'wait' command.*The redis backend"):
        one.request(mine)
    assert not one.locked(mine.key)


@pytest.mark.parametrize("replicas", [0, -1, True, 1.5, "1"])
def test_what_is_no_number_of_replicas_is_refused(replicas: object) -> None:
    with pytest.raises(ConfigurationError, match=r"replicas=.*has to be a whole number, 1 or more"):
        Contender("redis://localhost", replicas=replicas)  # type: ignore[arg-type]
