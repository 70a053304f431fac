"""The tutorials, typed step by step: what oversells there oversells, and what is exact is exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.docs.shop_folder import DjangoShop, FlaskShop, Shop, buy, served, shown
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]


@pytest.fixture(scope="module", params=[DjangoShop, FlaskShop], ids=["django", "flask"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made: Shop = request.param(tmp_path_factory.mktemp("tutorial"))
    return made


def test_the_pages_show_what_the_steps_are_about(shop: Shop) -> None:
    """The numbers of what oversells differ from run to run."""
    alone, in_process, two, locked, forgetful, fenced = shown(shop.page)
    assert all(one.oversold for one in (alone, two, forgetful))
    assert all(one.exact for one in (in_process, locked))
    assert fenced.fenced


def test_without_a_lock_it_oversells(shop: Shop) -> None:
    shop.type_step(1, "")
    with served(shop, servers=1) as ports:
        assert buy(shop, ports).oversold


def test_a_lock_in_the_process_is_enough_for_one_server_and_not_for_two(shop: Shop) -> None:
    shop.type_step(2, "")
    with served(shop) as ports:
        assert buy(shop, ports[:1]).exact
        assert buy(shop, ports).oversold


def test_one_lock_for_all_servers_is_exact(shop: Shop) -> None:
    shop.type_step(4, "")
    with served(shop) as ports:
        assert buy(shop, ports).exact


@pytest.fixture
def forgetting(redis_server: RedisServer) -> Iterator[RedisServer]:
    """It loses all that it has fifty times a second, as the loop in the tutorial's terminal makes it."""
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.02):
            redis_server.tell("FLUSHALL")

    thread = threading.Thread(target=forget)
    thread.start()
    yield redis_server
    over.set()
    thread.join()


def test_a_lock_service_that_forgets_needs_the_fence(shop: Shop, forgetting: RedisServer) -> None:
    shop.type_step(5, forgetting.url)
    with served(shop) as ports:
        assert buy(shop, ports).oversold
    shop.type_step(6, forgetting.url)
    with served(shop) as ports:
        assert buy(shop, ports).fenced
