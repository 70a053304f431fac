"""How permits of a process are asked for, and what is told of one that is lost."""

from __future__ import annotations

import pytest

from distlock.backends.base import PERMIT
from tests.engine.scene import Scene, asked, come_as, granted, scene

__all__ = ["asked", "come_as", "scene"]

pytestmark = pytest.mark.usefixtures("come_as")


def test_the_next_one_asks_for_a_permit_as_soon_as_the_first_has_one(scene: Scene, asked: list[str]) -> None:
    several = [scene.come(mode=PERMIT, limit=2) for _ in range(3)]
    assert [one.done for one in several] == [True, True, False]
    assert len(asked) == 3
    several[0].leave()
    granted(several[2]).check()


def test_a_lost_permit_is_told_without_a_fence(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    grant = granted(scene.come(mode=PERMIT, limit=2, max_hold=1.0))
    scene.all[0].engine.hold_calls.lose(grant._hold, "it was broken", cancel=False)
    assert "The semaphore 'a' was lost: it was broken." in caplog.text
    assert grant.lost
    grant.release()


def test_each_other_limit_of_another_process_is_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for limit in (2, 3, 3, 4):
        one = scene.come(mode=PERMIT, limit=2)
        other = scene.come(process=1, mode=PERMIT, limit=limit)
        one.leave()
        other.leave()
    for limit in (3, 4):
        assert caplog.text.count(f"'a' is asked for with limit={limit} here, and with limit=2 elsewhere") == 1
    assert len(caplog.records) == 2
