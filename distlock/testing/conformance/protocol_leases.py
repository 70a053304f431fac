"""The conformance kit: leases, call by call. A hold that is not renewed ends, and no other hold with it."""

from __future__ import annotations

import threading

from distlock.testing.conformance.protocol_readers import downgrade, downgraded
from distlock.testing.contenders import LONG, Contender, ProtocolFixtures, ask, permit, read


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
