from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import new_backend
from tests.zookeeper_server import ZooKeeperServer

#: Of the next few thousand transactions.
AHEAD = 1 << 22


@pytest.fixture
def one(zookeeper_server: ZooKeeperServer) -> Iterator[Contender]:
    one = Contender(new_backend(zookeeper_server.url))
    yield one
    one.backend.close()


@pytest.mark.fault("F30")
def test_a_fence_that_fell_behind_cannot_be_lifted_and_the_remedy_is_named(one: Contender) -> None:
    mine = ask("floor:product_1")
    fence = one.held(mine).number
    with pytest.raises(ConfigurationError, match=r"ZooKeeper can't skip numbers: raise FENCE_EPOCH"):
        one.backend.raise_fence(mine, fence + AHEAD)


def test_who_does_not_hold_it_is_told_so_instead(one: Contender) -> None:
    mine = ask("floor:product_2")
    one.held(mine)
    assert one.backend.raise_fence(ask("floor:product_2"), 2**62) is None


def test_behind_by_less_than_a_transaction_it_is_enough_to_ask_again(one: Contender) -> None:
    mine, next_one = ask("floor:product_3"), ask("floor:product_3")
    fence = one.held(mine).number
    with pytest.raises(BackendUnavailable, match="try again"):
        one.backend.raise_fence(mine, fence + 1)
    one.backend.release(mine)
    assert one.held(next_one).number > fence + 1
