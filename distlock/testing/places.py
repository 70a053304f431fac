"""What a place in a line is, whatever is asked for: *one* holds *first*, and *two* waits with *second*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.backends.base import LockRequest

if TYPE_CHECKING:
    from distlock.testing.protocol import Contender


def polls_take_no_second_place(
    one: Contender,
    two: Contender,
    three: Contender,
    first: LockRequest,
    second: LockRequest,
    third: LockRequest,
) -> None:
    one.held(first)
    for _ in range(3):
        two.queued(second)
    three.queued(third)
    one.backend.release(first)
    two.held(second)
    two.backend.release(second)
    three.held(third)
    assert three.backend.release(third)
    assert not three.backend.locked(third.key)


def a_late_cancel_keeps_the_hold(
    one: Contender,
    two: Contender,
    three: Contender,
    first: LockRequest,
    second: LockRequest,
    third: LockRequest,
) -> None:
    one.held(first)
    two.queued(second)
    one.backend.release(first)
    assert two.backend.cancel(second) is True
    three.queued(third)
    two.held(second)


def nobody_waits_behind_who_closed(
    one: Contender,
    two: Contender,
    three: Contender,
    first: LockRequest,
    second: LockRequest,
    third: LockRequest,
) -> None:
    one.held(first)
    two.queued(second)
    three.queued(third)
    two.backend.close()
    one.backend.release(first)
    three.until_held(third)
