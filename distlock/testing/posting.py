"""The conformance kit: releases that are sent, and whose answers nobody waits for."""

from __future__ import annotations

from distlock.backends.base import Acquired, LockRequest
from distlock.backends.optional import Posts
from distlock.testing.protocol import Contender, ProtocolFixtures, ask


def posts(one: Contender) -> Posts:
    assert isinstance(one.backend, Posts)
    return one.backend


class PostingConformance(ProtocolFixtures):
    """For backends that are `distlock.backends.optional.Posts`."""

    def post(self, one: Contender, mine: LockRequest) -> list[bool | None]:
        told: list[bool | None] = []
        posts(one).post(mine, told.append)
        return told

    def settle(self, one: Contender) -> None:
        """Wait until all that was posted is carried out."""
        while not posts(one).settle():
            pass

    def test_what_is_asked_after_a_posted_release_finds_the_key_free(self, one: Contender, key: str) -> None:
        mine = ask(key)
        one.held(mine)
        for _ in range(20):
            assert self.post(one, mine) == []
            mine = ask(key, wait=False)
            one.held(mine)

    def test_a_posted_release_hands_over(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        two.queued(second)
        self.post(one, first)
        assert two.sink.wait_for_hint(key)
        two.held(second)

    def test_when_all_is_settled_everybody_sees_it(self, one: Contender, two: Contender, key: str) -> None:
        for _ in range(3):
            mine = ask(key)
            one.held(mine)
            told = self.post(one, mine)
            self.settle(one)
            assert isinstance(two.backend.request(second := ask(key, wait=False)), Acquired)
            assert two.backend.release(second)
            assert told == []

    def test_a_posted_release_of_what_is_not_ours_is_told(self, one: Contender, key: str) -> None:
        for _ in range(3):
            mine = ask(key)
            one.held(mine)
            told = self.post(one, ask(key))
            self.settle(one)
            assert told == [False]
            assert one.backend.release(mine)
