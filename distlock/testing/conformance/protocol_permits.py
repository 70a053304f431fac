"""The conformance kit: permits, call by call. Several may hold a key, up to a limit."""

from __future__ import annotations

import threading

from distlock.backends.base import Busy
from distlock.testing.protocol_fixtures import Contender, ProtocolFixtures, ask, permit


class PermitConformance(ProtocolFixtures):
    """Tests for backends with the capability `permits`."""

    # -- the limit -------------------------------------------------------------------------------

    def test_as_many_enter_as_the_limit_says(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        inside = [permit(key, 3) for _ in range(3)]
        for who, mine in zip((one, two, two), inside, strict=True):
            who.held(mine)
        assert three.backend.request(permit(key, 3, wait=False)) == Busy()
        three.queued(permit(key, 3))
        assert one.backend.locked(key)
        assert one.backend.renew(inside) == [True, True, True]

    def test_several_permits_are_had_at_once(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        large, small, waiting = permit(key, 5, 3), permit(key, 5, 2), permit(key, 5, 3)
        one.held(large)
        two.held(small)
        three.queued(waiting)
        assert two.backend.release(small)
        three.queued(waiting)
        assert one.backend.release(large)
        three.held(waiting)
        two.held(small)
        one.queued(permit(key, 5))

    def test_who_does_not_want_to_wait_leaves_no_trace(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        mine = permit(key, 2)
        one.held(mine)
        assert two.backend.request(permit(key, 2, 2, wait=False)) == Busy()
        assert one.backend.release(mine)
        assert not one.backend.locked(key)
        two.held(permit(key, 2, 2))

    def test_each_goes_by_its_own_limit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        """During a deployment, old and new processes have different limits."""
        older = [permit(key, 2), permit(key, 2)]
        one.held(older[0])
        two.held(older[1])
        three.held(permit(key, 3))
        newest, behind = permit(key, 2), permit(key, 9)
        three.queued(newest)
        two.queued(behind)
        assert one.backend.release(older[0])
        three.queued(newest)
        two.queued(behind)
        assert two.backend.release(older[1])
        three.held(newest)
        two.held(behind)

    def test_who_waits_with_a_smaller_limit_holds_up_those_behind_it(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        """Later requests wait until the one with the smaller limit is granted or cancelled."""
        one.held(permit(key, 3))
        smaller, larger = permit(key, 1), permit(key, 3)
        two.queued(smaller)
        assert three.backend.request(permit(key, 3, wait=False)) == Busy()
        three.queued(larger)
        assert two.backend.cancel(smaller) is False
        three.held(larger)

    def test_who_is_granted_some_hears_of_another_limit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        older = permit(key, 3)
        assert one.held(older).other_limit == 0
        assert two.held(permit(key, 3)).other_limit == 0
        assert three.held(permit(key, 5)).other_limit == 3
        assert one.held(older).other_limit == 5

    # -- the queue -------------------------------------------------------------------------------

    def test_a_small_ask_does_not_pass_a_large_one(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, large, small = permit(key, 3, 2), permit(key, 3, 2), permit(key, 3)
        one.held(first)
        two.queued(large)
        assert three.backend.request(permit(key, 3, wait=False)) == Busy()
        three.queued(small)
        three.queued(small)
        assert one.backend.release(first)
        two.held(large)
        three.held(small)

    def test_a_freed_permit_goes_to_who_asked_first_and_tells_nobody_else(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        inside = [permit(key, 2), permit(key, 2)]
        for mine in inside:
            one.held(mine)
        first, second = two.queue_and_listen(permit(key, 2)), three.queue_and_listen(permit(key, 2))
        assert one.backend.release(inside[1])
        assert two.sink.wait_for_notification(key)
        number = two.held(first).number
        # A backend may push the hold with the notification.
        for _, token, told, _ in two.sink.hand_offs:
            assert (token, told) == (first.token, number)
        three.queued(second)
        assert three.sink.notified_keys == []
        assert one.backend.release(inside[0])
        assert three.sink.wait_for_notification(key)
        three.held(second)

    def test_several_freed_permits_let_in_as_many_as_fit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        large = permit(key, 2, 2)
        one.held(large)
        waiting = [(who, who.queue_and_listen(permit(key, 2))) for who in (two, three)]
        last = permit(key, 2)
        one.queued(last)
        assert one.backend.release(large)
        for who, mine in waiting:
            assert who.sink.wait_for_notification(key)
            who.held(mine)
        one.queued(last)

    def test_who_cancels_lets_in_who_is_behind(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        large = permit(key, 3, 3)
        one.held(permit(key, 3))
        two.queued(large)
        small = three.queue_and_listen(permit(key, 3))
        assert two.backend.cancel(large) is False
        assert two.backend.cancel(large) is False
        assert three.sink.wait_for_notification(key)
        three.held(small)

    def test_who_cancels_too_late_is_told_and_keeps_the_permit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.a_late_cancel_keeps_the_hold(one, two, three, permit(key, 1), permit(key, 1), permit(key, 1))

    def test_nobody_waits_behind_a_closed_backend_for_a_permit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.nobody_waits_behind_who_closed(one, two, three, permit(key, 1), permit(key, 1), permit(key, 1))

    # -- repetition ------------------------------------------------------------------------------

    def test_asking_again_takes_no_second_permit(self, one: Contender, two: Contender, key: str) -> None:
        mine = permit(key, 2)
        for _ in range(3):
            one.held(mine)
        two.held(permit(key, 2))
        two.queued(permit(key, 2))

    def test_asking_again_for_a_permit_while_queued_takes_no_second_place(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.polls_take_no_second_place(one, two, three, permit(key, 1), permit(key, 1), permit(key, 1))

    def test_a_second_release_frees_no_second_permit(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second, third = permit(key, 2), permit(key, 2), permit(key, 2)
        one.held(first)
        one.held(permit(key, 2))
        two.queued(second)
        three.queued(third)
        assert one.backend.release(first) is True
        assert one.backend.release(first) is False
        two.held(second)
        three.queued(third)

    def test_only_its_token_proves_a_permit(self, one: Contender, two: Contender, key: str) -> None:
        mine, forged = permit(key, 1), permit(key, 1)
        one.held(mine)
        assert one.backend.release(forged) is False
        two.queued(permit(key, 1))
        assert two.backend.renew([forged, mine, ask(key)]) == [False, True, False]


class PermitLeaseConformance(ProtocolFixtures):
    """Tests for backends with the capabilities `permits` and `lease`."""

    def test_a_permit_comes_back_after_its_lease_and_only_once(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        lapsed, second, third = permit(key, 2, ttl=0.5), permit(key, 2), permit(key, 2)
        one.held(lapsed)
        two.held(permit(key, 2))
        two.until_held(second)
        assert one.backend.renew([lapsed]) == [False]
        three.queued(third)
        assert one.backend.release(lapsed) is False
        three.queued(third)

    def test_all_permits_of_a_lapsed_hold_come_back(self, one: Contender, two: Contender, key: str) -> None:
        one.held(permit(key, 3, 2, ttl=0.5))
        two.until_held(permit(key, 3, 3))

    def test_each_permits_lease_ends_alone(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        hung, busy = permit(key, 2, ttl=0.5), permit(key, 2, ttl=1.5)
        one.held(hung)
        two.held(busy)
        pause = threading.Event()
        for _ in range(5):
            pause.wait(0.4)
            assert two.backend.renew([busy]) == [True]
        assert one.backend.renew([hung]) == [False]
        three.held(permit(key, 2))
        three.queued(permit(key, 2))

    def test_a_permit_that_was_handed_off_and_not_taken_is_worth_a_window_not_a_lease(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, third = permit(key, 1), permit(key, 1)
        one.held(first)
        two.queued(permit(key, 1))
        three.queued(third)
        one.backend.release(first)
        three.until_held(third, patience=3.0)
