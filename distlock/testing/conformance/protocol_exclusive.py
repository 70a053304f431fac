"""The conformance kit: exclusive lock requests and their numbers, call by call.

Subclass a part in a test module and give it a fixture ``url`` (and ``options``, if the backend needs some)::

    class TestMyBackend(ProtocolConformance):
        @pytest.fixture
        def url(self):
            return "mine://localhost"
"""

from __future__ import annotations

import threading

from distlock.backends.base import Acquired, Busy
from distlock.backends.protocols import Awaits, Posts, PushesHolds, Reads
from distlock.testing.protocol_fixtures import Contender, ProtocolFixtures, ask, read

#: By how much the number that a database remembers is larger than the lock service's.
AHEAD = 10_000_000_000


class UnfairProtocolConformance(ProtocolFixtures):
    """Tests for all backends, also those without a queue."""

    def test_what_it_can_do_is_declared_and_tested(self, one: Contender) -> None:
        can = one.backend.capabilities
        tested = {cls.__name__ for cls in type(self).__mro__}
        for declared, what, part in (
            (can.lease, "lease", "LeaseConformance"),
            (can.fence, "fence", "NumberConformance"),
            (can.fair, "fair", "ProtocolConformance"),
            (isinstance(one.backend, Posts), "post()", "PostingConformance"),
            (isinstance(one.backend, PushesHolds), "acknowledge()", "HandingConformance"),
            (isinstance(one.backend, Awaits), "begin()", "AwaitingConformance"),
            (isinstance(one.backend, Reads), "downgrade()", "ReadConformance"),
            (can.read, "read", "ReadConformance"),
            (can.read and can.lease, "read with lease", "ReadLeaseConformance"),
            (can.permits, "permits", "PermitConformance"),
            (can.permits and can.lease, "permits with lease", "PermitLeaseConformance"),
        ):
            assert declared == (part in tested), f"{what} and {part} go together"

    # -- exclusion -------------------------------------------------------------------------------

    def test_a_free_key_is_held_at_once(self, one: Contender, key: str) -> None:
        assert not one.backend.locked(key)
        one.held(ask(key))
        assert one.backend.locked(key)

    def test_a_held_key_is_not_held_by_another(self, one: Contender, two: Contender, key: str) -> None:
        one.held(ask(key))
        two.queued(ask(key))

    def test_two_asks_of_one_client_are_two_asks(self, one: Contender, key: str) -> None:
        one.held(ask(key))
        one.queued(ask(key))

    def test_who_does_not_want_to_wait_is_told_busy_and_leaves_no_trace(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first = ask(key)
        one.held(first)
        assert two.backend.request(ask(key, wait=False)) == Busy()
        assert one.backend.release(first)
        assert not one.backend.locked(key)

    def test_different_names_are_different_locks(self, one: Contender, two: Contender, key: str) -> None:
        endings = [
            "",
            " ",
            "_",
            "/",
            "/1",
            "}",
            "{",
            "}{",
            ":queue",
            "*",
            "?",
            "%",
            "%25",
            "\u00e9",
            "e\u0301",
        ]
        endings += ["A", "a", "\U0001f600", "\u0661", "1", "01", "..", "../1", "'", '"', "--", "x" * 200]
        endings += ["x" * 199, "x" * 199 + "y"]
        for ending in endings:
            one.held(ask(key + ending))
        for ending in endings:
            two.queued(ask(key + ending))

    # -- cancelling ------------------------------------------------------------------------------

    def test_who_cancels_is_out_of_the_queue(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        assert two.backend.cancel(second) is False
        assert two.backend.cancel(second) is False
        one.backend.release(first)
        assert not one.backend.locked(key)

    def test_who_cancels_what_it_holds_is_told_and_keeps_it(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first = ask(key)
        one.held(first)
        assert one.backend.cancel(first) is True
        two.queued(ask(key))

    # -- repetition ------------------------------------------------------------------------------

    def test_asking_again_while_holding_gives_the_same_hold(self, one: Contender, key: str) -> None:
        first = ask(key)
        assert one.held(first).number == one.held(first).number

    def test_a_second_release_frees_nobody_elses_hold(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        assert one.backend.release(first) is True
        two.held(second)
        assert one.backend.release(first) is False
        three.queued(ask(key))

    def test_only_the_token_proves_the_hold(self, one: Contender, two: Contender, key: str) -> None:
        first, forged = ask(key), ask(key)
        one.held(first)
        assert one.backend.release(forged) is False
        assert two.backend.renew([forged, first]) == [False, True]
        two.queued(ask(key))


class ProtocolConformance(UnfairProtocolConformance):
    """Tests for backends that are `fair`, which is the default."""

    # -- the queue -------------------------------------------------------------------------------

    def test_a_released_key_goes_to_who_asked_first(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second, third = ask(key), ask(key), ask(key)
        one.held(first)
        two.queued(second)
        three.queued(third)
        assert one.backend.release(first)
        three.queued(third)
        two.held(second)
        assert two.backend.release(second)
        three.held(third)

    def test_a_newcomer_does_not_pass_who_waits(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        one.backend.release(first)
        three.queued(ask(key))
        two.held(second)

    def test_who_is_next_is_given_a_hint(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        # A lock service may learn only by the second request where to send notifications.
        two.queued(second)
        one.backend.release(first)
        assert two.sink.wait_for_notification(key)
        two.held(second)

    def test_asking_again_while_queued_takes_no_second_place(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.polls_take_no_second_place(one, two, three, ask(key), ask(key), ask(key))

    def test_who_cancels_too_late_is_told_and_keeps_the_hold(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.a_late_cancel_keeps_the_hold(one, two, three, ask(key), ask(key), ask(key))


class NumberConformance(ProtocolFixtures):
    """Tests for backends with the capability `fence`: numbers grow."""

    def test_later_holds_have_larger_numbers(self, one: Contender, two: Contender, key: str) -> None:
        numbers = []
        for who in (one, two, one, one, two):
            mine = ask(key)
            numbers.append(who.held(mine).number)
            who.backend.release(mine)
        assert numbers == sorted(set(numbers))

    def test_a_hold_reserves_a_whole_block_of_numbers(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key, span=1000), ask(key)
        base = one.held(first).number
        two.queued(second)
        one.backend.release(first)
        assert two.held(second).number >= base + 1000


class FloorConformance(ProtocolFixtures):
    """Tests for lock services that can skip numbers, up to the one that a database remembers."""

    def test_a_raised_floor_lifts_the_hold_and_all_later_ones(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second, third = ask(key, span=10), ask(key), ask(key)
        floor = one.held(first).number + AHEAD
        # This request is queued before the fence is raised.
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


class LeaseConformance(ProtocolFixtures):
    """Tests for backends with the capability `lease`."""

    def test_a_hold_that_nobody_renews_ends(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key, ttl=0.5), ask(key)
        number = one.held(first).number
        assert two.until_held(second).number > number
        assert one.backend.renew([first]) == [False]
        assert one.backend.release(first) is False

    def test_a_renewed_hold_does_not_end(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key, ttl=1.5), ask(key)
        one.held(first)
        pause = threading.Event()
        for _ in range(6):
            pause.wait(0.4)
            assert one.backend.renew([first]) == [True]
            two.queued(second)

    def test_a_hand_over_that_nobody_takes_is_worth_a_window_not_a_lease(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, third = ask(key), ask(key)
        one.held(first)
        two.queued(ask(key))
        three.queued(third)
        one.backend.release(first)
        three.until_held(third, patience=3.0)
