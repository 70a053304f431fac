"""Where anything is unusual a thread asks the same as the event loop did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import distlock
from distlock.testing.waits import ask_of
from tests.backends.redis.proxy import Proxy
from tests.backends.redis.tasks import Connect, connect, held_by, hops, pool_of, settled, taken, until
from tests.redis_server import RedisServer
from tests.stored import command, hold_key

__all__ = ["connect", "hops"]


@pytest.mark.parametrize("lose", [Proxy.lose_request, Proxy.lose_reply], ids=["request", "reply"])
def test_what_is_lost_is_asked_again_by_a_thread(
    proxy: Proxy, connect: Connect, hops: list[str], lose: Callable[[Proxy], None]
) -> None:
    locks = connect(proxy.url)

    async def main() -> None:
        lose(proxy)
        grants = await asyncio.gather(*[taken(locks, f"product_{number}") for number in range(3)])
        assert proxy.lost.is_set()
        assert not any(grant.lost for grant in grants)
        lose(proxy)
        for grant in grants:
            await grant.arelease()
        for number in range(3):
            again = await taken(locks, f"product_{number}")
            assert again.fence > grants[number].fence
            await again.arelease()

    asyncio.run(main())
    assert set(hops) <= {"request", "post"}
    assert "request" in hops
    settled(locks)


def test_a_reply_that_comes_byte_by_byte_is_put_together(
    proxy: Proxy, connect: Connect, hops: list[str]
) -> None:
    locks = connect(proxy.url)
    proxy.drips = 0.0005

    async def main() -> None:
        for _ in range(3):
            async with locks.lock("product_1"):
                pass

    asyncio.run(main())
    assert hops == []
    settled(locks)


def test_a_server_that_forgot_the_scripts_is_told_again(
    own_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(own_server.url)

    async def main() -> None:
        own_server.client.script_flush()
        grant = await taken(locks, "product_1")
        own_server.client.script_flush()
        await grant.arelease()
        await (await taken(locks, "product_1")).arelease()

    asyncio.run(main())
    assert hops
    settled(locks)


@pytest.mark.attack("A43")
def test_a_reply_that_answers_another_is_not_believed(
    own_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(own_server.url)
    stray = pool_of(locks)._idle[-1]
    stray.send(command("EVAL", "return {'a token of somebody else', 1, '5'}", 0), float("inf"))

    async def main() -> None:
        async with locks.lock("product_1") as grant:
            assert held_by(own_server, "product_1") == ask_of(grant).token

    asyncio.run(main())
    assert hops == ["request"]
    assert stray not in pool_of(locks)._all
    settled(locks)


def test_a_key_that_is_somebody_elses_is_told(redis_server: RedisServer, connect: Connect) -> None:
    locks = connect(redis_server.url)
    redis_server.client.hset(hold_key("test:theirs"), "a", "b")
    try:
        with pytest.raises(distlock.BackendUnavailable, match="did not write"):
            asyncio.run(locks.lock("theirs").aacquire())
    finally:
        redis_server.client.delete(hold_key("test:theirs"))


def test_a_release_of_what_was_not_ours_any_more_is_told(redis_server: RedisServer, connect: Connect) -> None:
    told: list[str] = []
    locks = connect(redis_server.url, on_lost=lambda grant, why: told.append(why))

    async def main() -> None:
        grant = await taken(locks, "product_1")
        redis_server.client.delete(hold_key("test:product_1"))
        await grant.arelease()
        await until(lambda: told, "on_lost is called")

    asyncio.run(main())
    assert "before it was released" in told[0]


def test_a_server_that_hangs_is_waited_for_until_the_deadline(
    own_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(own_server.url, io_timeout=0.3)
    own_server.pause()

    async def main() -> None:
        with pytest.raises(distlock.BackendUnavailable, match="in time"):
            await taken(locks, "product_1")

    try:
        asyncio.run(main())
    finally:
        own_server.resume()
    assert hops == []
    with locks.lock("product_1"):
        pass
    settled(locks)


class NoReaders(asyncio.SelectorEventLoop):
    """As one of Windows."""

    def add_reader(self, *_: Any) -> None:
        raise NotImplementedError


def test_a_loop_that_can_not_look_at_sockets_has_threads(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(redis_server.url)

    async def main() -> None:
        for _ in range(20):
            async with locks.lock("product_1"):
                # The keeper may be reading an answer there.
                await until(lambda: pool_of(locks)._idle, "it is idle")
                used.append(pool_of(locks)._idle[-1])

    used: list[object] = []
    with asyncio.Runner(loop_factory=NoReaders) as runner:
        runner.run(main())
    assert hops.count("request") == 20
    # One more, or two, where the keeper was reading on the first.
    assert len(set(used)) <= 5, "only the first call has found that out"
    settled(locks)
