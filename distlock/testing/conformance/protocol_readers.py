"""The conformance kit: readers that share a key, call by call, and writers that become readers.

`distlock.backends.protocols` says what a backend with readers has to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from distlock.backends.base import READ, Busy, LockRequest
from distlock.backends.protocols import Reads
from distlock.testing.protocol_fixtures import LONG, Contender, ProtocolFixtures, ask, read


def downgrade(one: Contender, mine: LockRequest) -> bool:
    assert isinstance(one.backend, Reads)
    return one.backend.downgrade(mine)


def downgraded(mine: LockRequest) -> LockRequest:
    """Return the lock request that the engine has in place of *mine* after a downgrade."""
    return replace(mine, mode=READ)


class DowngradeConformance(ProtocolFixtures):
    """The tests of downgrades in `ReadConformance`."""

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
        reader = two.queue_and_listen(read(key))
        three.queued(second)
        four.queued(later)
        assert downgrade(one, first)
        assert two.sink.wait_for_notification(key)
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
        # The grants of the writer may have used all numbers of its block.
        assert as_reader >= number + 999
        one.backend.release(downgraded(first))
        assert two.held(second).number > as_reader


class ReadConformance(DowngradeConformance):
    """Tests for backends with the capability `read`."""

    # -- exclusion -------------------------------------------------------------------------------

    def test_readers_share_a_key(self, one: Contender, two: Contender, key: str) -> None:
        first, second = read(key), read(key)
        one.held(first)
        two.held(second)
        assert one.backend.locked(key)
        assert one.backend.renew([first]) == [True]
        assert two.backend.renew([second]) == [True]

    def test_two_readers_of_one_client_are_two(self, one: Contender, two: Contender, key: str) -> None:
        first, second = read(key), read(key)
        one.held(first)
        one.held(second)
        assert one.backend.release(first)
        two.queued(ask(key))
        assert one.backend.renew([first, second]) == [False, True]

    def test_a_reader_keeps_writers_out(self, one: Contender, two: Contender, key: str) -> None:
        one.held(read(key))
        assert two.backend.request(ask(key, wait=False)) == Busy()
        two.queued(ask(key))

    def test_a_writer_keeps_readers_out(self, one: Contender, two: Contender, key: str) -> None:
        one.held(ask(key))
        assert two.backend.request(read(key, wait=False)) == Busy()
        two.queued(read(key))

    def test_a_reader_who_does_not_want_to_wait_leaves_no_trace(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second = ask(key), read(key, wait=False)
        one.held(first)
        assert two.backend.request(second) == Busy()
        assert one.backend.release(first)
        assert not one.backend.locked(key)
        one.held(read(key))
        two.held(second)

    # -- the queue -------------------------------------------------------------------------------

    def test_a_reader_does_not_pass_a_writer_that_waits(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, writer, later = read(key), ask(key), read(key)
        one.held(first)
        two.queued(writer)
        assert three.backend.request(read(key, wait=False)) == Busy()
        three.queued(later)
        three.queued(later)
        assert one.backend.release(first)
        three.queued(later)
        two.held(writer)
        assert two.backend.release(writer)
        three.held(later)

    def test_a_released_writer_hands_to_the_readers_up_to_the_next_writer(
        self, one: Contender, two: Contender, three: Contender, four: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        run, later = [read(key), read(key)], read(key)
        one.held(first)
        two.queued(run[0])
        three.queued(run[1])
        one.queued(second)
        four.queued(later)
        assert one.backend.release(first)
        two.held(run[0])
        three.held(run[1])
        one.queued(second)
        four.queued(later)
        assert two.backend.release(run[0])
        assert three.backend.release(run[1])
        one.held(second)
        four.queued(later)
        assert one.backend.release(second)
        four.held(later)

    def test_a_long_run_of_readers_enters_wholly(
        self, one: Contender, contender: Callable[[], Contender], key: str
    ) -> None:
        writer = ask(key)
        one.held(writer)
        run = [(who, who.queue_and_listen(read(key))) for who in [contender() for _ in range(20)]]
        one.backend.release(writer)
        for who, reader in run:
            who.until_held(reader, patience=5.0)
        one.queued(ask(key))

    def test_the_last_reader_out_hands_to_the_writer(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second, writer = read(key), read(key), ask(key)
        one.held(first)
        two.held(second)
        three.queue_and_listen(writer)
        assert one.backend.release(first)
        three.queued(writer)
        assert two.backend.release(second)
        assert three.sink.wait_for_notification(key)
        three.held(writer)

    def test_each_reader_that_is_next_is_given_a_hint(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        writer = ask(key)
        one.held(writer)
        waiting = [(who, who.queue_and_listen(read(key))) for who in (two, three)]
        one.backend.release(writer)
        for who, reader in waiting:
            assert who.sink.wait_for_notification(key)
            number = who.held(reader).number
            # A backend may push the hold with the notification.
            for _, token, told, _ in who.sink.hand_offs:
                assert (token, told) == (reader.token, number)

    def test_a_reader_is_told_whether_others_wait(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        reader, writer = read(key), ask(key)
        assert not one.held(reader).followed
        two.held(read(key))
        assert not one.held(reader).followed
        three.queued(writer)
        assert one.held(reader).followed
        three.backend.cancel(writer)
        assert not one.held(reader).followed

    # -- leaving ---------------------------------------------------------------------------------

    def test_a_reader_who_cancels_is_out_of_the_queue(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        writer, reader, next_one = ask(key), read(key), ask(key)
        one.held(writer)
        two.queued(reader)
        three.queued(next_one)
        assert two.backend.cancel(reader) is False
        assert two.backend.cancel(reader) is False
        one.backend.release(writer)
        three.held(next_one)

    def test_a_reader_who_cancels_too_late_is_told_and_keeps_the_hold(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.a_late_cancel_keeps_the_hold(one, two, three, ask(key), read(key), ask(key))

    def test_a_writer_who_cancels_lets_in_the_readers_behind_it(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        writer = ask(key)
        one.held(read(key))
        two.queued(writer)
        reader = three.queue_and_listen(read(key))
        assert two.backend.cancel(writer) is False
        assert three.sink.wait_for_notification(key)
        three.held(reader)

    def test_nobody_waits_behind_a_reader_of_a_closed_backend(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.nobody_waits_behind_who_closed(one, two, three, ask(key), read(key), ask(key))

    # -- repetition ------------------------------------------------------------------------------

    def test_a_reader_that_asks_again_has_the_same_hold(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        reader, writer = read(key), ask(key)
        assert one.held(reader).number == one.held(reader).number
        two.queued(writer)
        # The reader holds already, so a repeated request does not pass the writer.
        one.held(reader)
        assert one.backend.release(reader)
        two.held(writer)

    def test_a_reader_that_asks_again_while_queued_takes_no_second_place(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.polls_take_no_second_place(one, two, three, ask(key), read(key), ask(key))

    def test_a_second_release_frees_no_other_readers_hold(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second = read(key), read(key)
        one.held(first)
        two.held(second)
        assert one.backend.release(first) is True
        assert one.backend.release(first) is False
        three.queued(ask(key))
        assert two.backend.renew([second]) == [True]

    def test_only_its_token_proves_a_readers_hold(self, one: Contender, two: Contender, key: str) -> None:
        mine, forged = read(key), read(key)
        one.held(mine)
        assert one.backend.release(forged) is False
        two.queued(ask(key))
        assert two.backend.renew([forged, mine]) == [False, True]

    def test_holds_of_all_modes_are_renewed_together(self, one: Contender, two: Contender, key: str) -> None:
        writer, first, second, gone = ask(f"{key}_w"), read(key), read(key), read(key)
        for mine in (writer, first, second, gone):
            one.held(mine)
        assert one.backend.release(gone)
        assert one.backend.renew([gone, first, writer, second]) == [False, True, True, True]
        two.queued(ask(key))

    # -- numbers ---------------------------------------------------------------------------------

    def test_a_readers_number_lies_between_those_of_the_writers(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        if not one.backend.capabilities.fence:
            pytest.skip("it has no numbers")
        before, after = ask(key, span=1000), ask(key)
        readers = [read(key), read(key), read(key)]
        number = one.held(before).number
        two.queued(readers[0])
        one.backend.release(before)
        numbers = [two.held(readers[0]).number, one.held(readers[1]).number, two.held(readers[2]).number]
        three.queued(after)
        assert min(numbers) >= number + 999
        for who, reader in zip((two, one, two), readers, strict=True):
            who.backend.release(reader)
        later = three.held(after).number
        assert later > max(numbers)
        three.backend.release(after)
        assert one.held(read(key)).number >= later


class ReadLeaseConformance(ProtocolFixtures):
    """Tests for backends with the capabilities `read` and `lease`."""

    def test_each_readers_lease_ends_alone(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        hung, alive, writer = read(key, ttl=0.5), read(key, ttl=LONG), ask(key)
        one.held(hung)
        two.held(alive)
        three.queued(writer)
        threading.Event().wait(0.75)
        assert one.backend.renew([hung]) == [False]
        assert one.backend.release(hung) is False
        assert two.backend.renew([alive]) == [True]
        three.queued(writer)
        assert two.backend.release(alive)
        three.held(writer)

    def test_a_renewal_is_for_one_reader(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        hung, busy = read(key, ttl=0.5), read(key, ttl=1.5)
        one.held(hung)
        two.held(busy)
        pause = threading.Event()
        for _ in range(5):
            pause.wait(0.4)
            assert two.backend.renew([busy]) == [True]
            three.queued(ask(key))
        assert one.backend.renew([hung]) == [False]

    def test_a_writer_enters_when_the_last_readers_lease_ends(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        readers, writer = [read(key, ttl=0.5), read(key, ttl=0.7)], ask(key)
        one.held(readers[0])
        two.held(readers[1])
        three.until_held(writer)
        assert one.backend.renew(readers) == [False, False]

    def test_a_reader_enters_when_the_lease_of_a_writer_ends(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        one.held(ask(key, ttl=0.5))
        two.until_held(read(key))

    def test_a_hand_over_that_a_reader_does_not_take_is_worth_a_window_not_a_lease(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, alive, last = ask(key), read(key), ask(key)
        one.held(first)
        two.queued(read(key))
        three.queued(alive)
        one.queued(last)
        one.backend.release(first)
        three.held(alive)
        assert three.backend.release(alive)
        one.until_held(last, patience=3.0)

    def test_a_downgraded_hold_has_its_own_lease(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        hung, alive = ask(key, ttl=0.5), read(key)
        one.held(hung)
        two.queued(alive)
        downgrade(one, hung)
        two.held(alive)
        threading.Event().wait(0.75)
        assert one.backend.renew([downgraded(hung)]) == [False]
        three.queued(ask(key))
        assert two.backend.renew([alive]) == [True]
