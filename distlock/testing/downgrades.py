"""The conformance kit: writers that become readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distlock.backends.base import READ, LockRequest
from distlock.backends.optional import Reads
from distlock.testing.protocol import Contender, ProtocolFixtures, ask, read


def downgrade(one: Contender, mine: LockRequest) -> bool:
    assert isinstance(one.backend, Reads)
    return one.backend.downgrade(mine)


def downgraded(mine: LockRequest) -> LockRequest:
    """As the engine asks with it from then on."""
    return replace(mine, mode=READ)


class DowngradeConformance(ProtocolFixtures):
    """A part of `ReadConformance`."""

    def test_a_downgrade_lets_no_writer_in(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        assert downgrade(one, first)
        two.queued(second)
        assert one.backend.renew([downgraded(first)]) == [True]
        assert one.held(downgraded(first)).followed
        assert one.backend.release(downgraded(first))
        two.held(second)

    def test_a_downgrade_lets_in_the_readers_that_are_next(
        self, one: Contender, two: Contender, three: Contender, four: Contender, key: str
    ) -> None:
        first, second, later = ask(key), ask(key), read(key)
        one.held(first)
        reader = two.in_line(read(key))
        three.queued(second)
        four.queued(later)
        assert downgrade(one, first)
        assert two.sink.wait_for_hint(key)
        two.held(reader)
        three.queued(second)
        four.queued(later)
        assert one.backend.release(downgraded(first))
        three.queued(second)
        assert two.backend.release(reader)
        three.held(second)

    def test_who_comes_after_a_downgrade_reads_beside(self, one: Contender, two: Contender, key: str) -> None:
        first = ask(key)
        one.held(first)
        downgrade(one, first)
        two.held(read(key))

    def test_a_second_downgrade_changes_nothing(self, one: Contender, two: Contender, key: str) -> None:
        first = ask(key)
        one.held(first)
        assert downgrade(one, first) is True
        number = one.held(downgraded(first)).number
        assert downgrade(one, first) is True
        assert one.held(downgraded(first)).number == number
        assert one.backend.release(downgraded(first)) is True
        assert downgrade(one, first) is False
        two.held(ask(key))

    def test_only_the_holder_downgrades(self, one: Contender, two: Contender, key: str) -> None:
        first, second, gone = ask(key), ask(key), ask(key)
        one.held(gone)
        one.backend.release(gone)
        one.held(first)
        two.queued(second)
        for other in (ask(key), second, gone):
            assert downgrade(two, other) is False
        assert one.backend.cancel(first)
        two.backend.cancel(second)
        two.queued(read(key))

    def test_the_number_of_a_downgraded_hold_is_that_of_a_reader(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        if not one.backend.capabilities.fence:
            pytest.skip("it has no numbers")
        first, second = ask(key, span=1000), ask(key)
        number = one.held(first).number
        two.queued(second)
        downgrade(one, first)
        as_reader = one.held(downgraded(first)).number
        # Its grants may have used up the block.
        assert as_reader >= number + 999
        one.backend.release(downgraded(first))
        assert two.held(second).number > as_reader
