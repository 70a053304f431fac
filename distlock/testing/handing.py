"""The conformance kit: pushes that hand the lock over, and their acknowledgement."""

from __future__ import annotations

import threading

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.optional import PushesHolds
from distlock.testing.protocol import Contender, ProtocolFixtures, ask


def acknowledged(one: Contender, mine: LockRequest, number: int) -> bool | None:
    assert isinstance(one.backend, PushesHolds)
    (answer,) = one.backend.acknowledge([(mine, number)])
    return answer


class HandingConformance(ProtocolFixtures):
    """For backends that are `distlock.backends.optional.PushesHolds`."""

    def hand_over(self, one: Contender, two: Contender, mine: LockRequest) -> tuple[int, float]:
        """Have *one* hand *mine* over to *two*. Returns what the push says: the number, and since when."""
        first = ask(mine.key)
        one.held(first)
        two.queued(mine)
        # A lock service may learn only now where to send pushes.
        two.queued(mine)
        one.backend.release(first)
        assert two.sink.wait_for_hint(mine.key)
        [(key, token, number, sent)] = two.sink.hand_offs
        assert (key, token) == (mine.key, mine.token)
        return number, sent

    def test_a_push_names_the_hold(self, one: Contender, two: Contender, key: str) -> None:
        mine = ask(key)
        before = clock.now()
        number, sent = self.hand_over(one, two, mine)
        assert before <= sent <= clock.now()
        assert two.held(mine).number == number

    def test_what_is_acknowledged_outlives_its_window(self, one: Contender, two: Contender, key: str) -> None:
        mine = ask(key)
        number, _ = self.hand_over(one, two, mine)
        assert acknowledged(two, mine, number)
        assert acknowledged(two, mine, number)
        assert isinstance(two.backend, PushesHolds)
        threading.Event().wait(1.2 * two.backend.window)
        one.queued(ask(key))

    def test_only_the_holder_acknowledges(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        mine = ask(key)
        number, _ = self.hand_over(one, two, mine)
        assert not acknowledged(three, ask(key), number)
        assert two.backend.release(mine)
        assert not acknowledged(two, mine, number)

    def test_an_acknowledgement_never_grants(self, one: Contender, key: str) -> None:
        assert not acknowledged(one, ask(key), 1)
        assert not one.backend.locked(key)

    def test_an_acknowledgement_is_for_one_number(self, one: Contender, key: str) -> None:
        """An ask that comes again late is granted again, after others were inside."""
        mine = ask(key)
        number = one.held(mine).number
        one.backend.release(mine)
        again = one.held(mine).number
        assert again > number
        assert not acknowledged(one, mine, number)
        assert acknowledged(one, mine, again)
