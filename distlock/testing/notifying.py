"""The conformance kit for backends with the capability `notify`: a holder is asked to give a key back.

Subclass it as `distlock.testing.ProtocolConformance`, with a fixture ``url``.
"""

from __future__ import annotations

import pytest

from distlock.backends.base import READ, LockRequest
from distlock.backends.inspectable import Announces
from distlock.backends.optional import Notifies
from distlock.testing.protocol import LONG, Contender, ProtocolFixtures, ask


def notifies(contender: Contender) -> Notifies:
    assert isinstance(contender.backend, Notifies)
    assert contender.backend.capabilities.notify
    return contender.backend


def look_after(contender: Contender, *requests: LockRequest) -> list[tuple[str, str]]:
    """What the keeper does every few seconds, and what the sink has been told by then."""
    backend = contender.backend
    backend.renew(requests)
    if not backend.capabilities.lease and isinstance(backend, Announces):
        backend.announce("web1", 1, [], [], LONG)
    return contender.sink.requests


class NotifyConformance(ProtocolFixtures):
    def test_nobody_is_asked_where_nobody_holds(self, one: Contender, two: Contender, key: str) -> None:
        assert not notifies(two).request_release(key)
        mine = ask(key)
        one.held(mine)
        assert one.backend.release(mine)
        assert not notifies(two).request_release(key)

    def test_the_holder_hears_that_its_hold_is_wanted_back(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        mine, other = ask(key), ask(f"{key}_other")
        one.held(mine)
        one.held(other)
        assert notifies(two).request_release(key)
        assert set(look_after(one, mine, other)) == {(key, mine.token)}
        assert not two.sink.requests

    def test_who_asks_itself_hears_it_too(self, one: Contender, key: str) -> None:
        mine = ask(key)
        one.held(mine)
        assert notifies(one).request_release(key)
        assert (key, mine.token) in look_after(one, mine)

    def test_a_request_takes_nothing(self, one: Contender, two: Contender, key: str) -> None:
        mine = ask(key)
        number = one.held(mine).number
        two.queued(ask(key))
        assert notifies(two).request_release(key)
        assert one.backend.renew([mine]) == [True]
        assert one.held(mine).number == number
        assert one.backend.release(mine) is True

    def test_who_waits_hears_nothing_and_no_later_holder_finds_it(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        assert notifies(three).request_release(key)
        assert (key, first.token) in look_after(one, first)
        one.backend.release(first)
        two.held(second)
        assert look_after(two, second) == []

    def test_the_same_process_that_takes_it_again_finds_nothing(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        assert notifies(two).request_release(key)
        one.backend.release(first)
        one.held(second)
        assert (key, second.token) not in look_after(one, second)

    def test_who_was_handed_the_key_is_asked_like_anybody(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        one.backend.release(first)
        two.held(second)
        assert notifies(one).request_release(key)
        assert (key, second.token) in look_after(two, second)

    def test_a_request_just_before_the_acknowledgement_is_kept(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        one.backend.release(first)
        asked = notifies(three).request_release(key)
        two.held(second)
        assert asked == ((key, second.token) in look_after(two, second))

    def test_all_readers_are_asked_and_no_writer_that_waits(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        if not one.backend.capabilities.read:
            pytest.skip("it has no readers")
        requests = [ask(key) for _ in range(3)]
        requests[0].mode = requests[1].mode = READ
        for reader, mine in zip((one, two), requests, strict=False):
            reader.held(mine)
        three.queued(requests[2])
        assert notifies(three).request_release(key)
        assert (key, requests[0].token) in look_after(one, requests[0])
        assert (key, requests[1].token) in look_after(two, requests[1])
        for reader, mine in zip((one, two), requests, strict=False):
            assert reader.backend.release(mine)
        three.until_held(requests[2])
        assert look_after(three, requests[2]) == []

    def test_asked_twice_is_asked(self, one: Contender, two: Contender, three: Contender, key: str) -> None:
        mine = ask(key)
        one.held(mine)
        assert notifies(two).request_release(key)
        assert notifies(three).request_release(key)
        assert set(look_after(one, mine)) == {(key, mine.token)}
        assert one.backend.renew([mine]) == [True]
