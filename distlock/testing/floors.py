"""The conformance kit: a lock service lets fences go on above a number that a database remembers."""

from __future__ import annotations

from distlock.backends.base import Acquired
from distlock.testing.protocol import Contender, ProtocolFixtures, ask, read

#: How far a database is ahead.
AHEAD = 10_000_000_000


class FloorConformance(ProtocolFixtures):
    """For lock services that can be told to skip numbers."""

    def test_a_raised_floor_lifts_the_hold_and_all_later_ones(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second, third = ask(key, span=10), ask(key), ask(key)
        floor = one.held(first).number + AHEAD
        # Its place in the queue is older than the floor.
        two.queued(second)
        lifted = one.backend.raise_fence(first, floor)
        assert lifted is not None
        assert lifted.number > floor
        assert one.held(first).number == lifted.number
        one.backend.release(first)
        later = two.held(second).number
        assert later >= lifted.number + 10
        two.backend.release(second)
        assert one.held(third).number > later

    def test_raising_a_floor_again_changes_nothing(self, one: Contender, key: str) -> None:
        mine = ask(key)
        floor = one.held(mine).number + AHEAD
        lifted = one.backend.raise_fence(mine, floor)
        assert lifted is not None
        again = one.backend.raise_fence(mine, floor)
        below = one.backend.raise_fence(mine, floor - AHEAD)
        assert isinstance(again, Acquired)
        assert isinstance(below, Acquired)
        assert again.number == below.number == lifted.number

    def test_only_the_holder_raises_a_floor(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        number = one.held(first).number
        two.queued(second)
        assert two.backend.raise_fence(second, number + AHEAD) is None
        assert one.backend.raise_fence(ask(key), number + AHEAD) is None
        one.backend.release(first)
        assert one.backend.raise_fence(first, number + AHEAD) is None
        assert number < two.held(second).number <= number + AHEAD

    def test_a_raised_floor_lifts_a_reader_and_later_writers(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        if not one.backend.capabilities.read:
            return
        reader, writer = read(key), ask(key)
        floor = one.held(reader).number + AHEAD
        two.queued(writer)
        lifted = one.backend.raise_fence(reader, floor)
        assert lifted is not None
        assert lifted.number > floor
        assert one.held(reader).number == lifted.number
        one.backend.release(reader)
        assert two.held(writer).number > lifted.number
        assert one.backend.raise_fence(reader, floor) is None
