"""A holder that is cut off for longer than its lock lives is no longer alone, whatever the lock."""

from __future__ import annotations

import pytest

import distlock
from demo_shop.museum import MuseumLock
from demo_shop.museum.redis_locks import RedisStep5
from loadtest.museum.instances import DistlockExhibit, control, on_redis
from loadtest.museum.scenes import cut_off
from tests.museum.conftest import Services


def test_the_best_of_the_exhibits_lets_a_second_one_in(services: Services) -> None:
    with on_redis(RedisStep5)(services("redis")) as bench:
        assert cut_off(bench) == 1


def test_so_does_distlock_and_the_first_one_knows_and_has_the_smaller_fence(services: Services) -> None:
    seen = []

    def look(first: MuseumLock, second: MuseumLock) -> None:
        assert isinstance(first, DistlockExhibit)
        assert isinstance(second, DistlockExhibit)
        overtaken, later = first.grant, second.grant
        assert overtaken
        assert later
        with pytest.raises(distlock.LockLost):
            overtaken.check()
        later.check()
        assert overtaken.fence < later.fence
        seen.append(overtaken.lost)

    with control(services("redis")) as bench:
        assert cut_off(bench, look) == 1
    assert seen == [True]
