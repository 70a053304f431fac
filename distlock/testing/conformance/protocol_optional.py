"""The conformance kit: optional methods of backends: `acknowledge`, `post`, and `begin` for event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from distlock import clock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, Acquired, Busy, LockRequest, Queued
from distlock.backends.latches import Latches
from distlock.backends.protocols import REPEAT, Awaits, Begun, Posts, PushesHolds, Reads
from distlock.testing.protocol_fixtures import LONG, Contender, ProtocolFixtures, ask


def acknowledged(one: Contender, mine: LockRequest, number: int) -> bool | None:
    assert isinstance(one.backend, PushesHolds)
    (answer,) = one.backend.acknowledge([(mine, number)])
    return answer


class HandingConformance(ProtocolFixtures):
    """Tests for backends with `acknowledge`, which are `distlock.backends.protocols.PushesHolds`."""

    def hand_over(self, one: Contender, two: Contender, mine: LockRequest) -> tuple[int, float]:
        """Hand the key of *mine* off from *one* to *two*. Return the number and *sent* of the push."""
        first = ask(mine.key)
        one.held(first)
        two.queued(mine)
        # A lock service may learn only by the second request where to send pushes.
        two.queued(mine)
        one.backend.release(first)
        assert two.sink.wait_for_notification(mine.key)
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
        """A lock request that is repeated late is granted again, with another number."""
        mine = ask(key)
        number = one.held(mine).number
        one.backend.release(mine)
        again = one.held(mine).number
        assert again > number
        assert not acknowledged(one, mine, number)
        assert acknowledged(one, mine, again)


def posts(one: Contender) -> Posts:
    assert isinstance(one.backend, Posts)
    return one.backend


class PostingConformance(ProtocolFixtures):
    """Tests for backends with `post`, which are `distlock.backends.protocols.Posts`."""

    def post(self, one: Contender, mine: LockRequest) -> list[bool | None]:
        told: list[bool | None] = []
        posts(one).post(mine, told.append)
        return told

    def settle(self, one: Contender) -> None:
        """Wait until all posted releases are carried out."""
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
        assert two.sink.wait_for_notification(key)
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


def begin(one: Contender, call: Any, *arguments: Any) -> Begun | None:
    assert isinstance(one.backend, Awaits)
    return one.backend.begin(call, *arguments, clock.now() + LONG)


async def answer(one: Contender, call: Any, *arguments: Any) -> Any:
    """Make *call* as the engine does: in the event loop, or in a thread if the loop can't."""
    begun = begin(one, call, *arguments)
    told = REPEAT if begun is None else await begun
    return await asyncio.to_thread(call, *arguments) if told is REPEAT else told


class AwaitingConformance(ProtocolFixtures):
    """Tests for backends with `begin`, which are `distlock.backends.protocols.Awaits`."""

    def warm(self, one: Contender, key: str) -> None:
        """Make the first calls, which load the scripts and find the server of *key*."""
        first = ask(key)
        one.held(first)
        assert one.backend.release(first)

    async def asked(self, one: Contender, mine: LockRequest) -> Any:
        return await answer(one, one.backend.request, mine)

    def test_a_loop_has_the_same_answers(self, one: Contender, two: Contender, key: str) -> None:
        self.warm(one, key)
        first, second = ask(key), ask(key)

        async def main() -> None:
            held = await self.asked(one, first)
            assert held == one.backend.request(first)
            assert isinstance(await self.asked(one, ask(key, wait=False)), Busy)
            await asyncio.to_thread(two.queued, second)
            assert await answer(two, two.backend.cancel, second) is False
            assert await answer(one, one.backend.cancel, first) is True

        asyncio.run(main())
        assert one.backend.release(first)
        assert not one.backend.locked(key)

    def test_a_loop_has_the_same_answers_for_what_several_hold(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        can = one.backend.capabilities
        kinds: list[dict[str, Any]] = [
            *([{"mode": READ}] if can.read else []),
            *([{"mode": PERMIT, "limit": 2}] if can.permits else []),
        ]
        self.warm(one, key)

        async def main(key: str, kind: dict[str, Any], none: dict[str, Any]) -> None:
            first, second, third = ask(key, **kind), ask(key, **kind), ask(key, **{**kind, **none})
            held = await self.asked(one, first)
            assert isinstance(held, Acquired)
            again = one.backend.request(first)
            assert isinstance(again, Acquired)
            assert (again.number, again.followed) == (held.number, held.followed)
            assert isinstance(await self.asked(two, second), Acquired)
            assert isinstance(await self.asked(two, third), Queued)
            assert await answer(two, two.backend.cancel, third) is False
            assert await answer(one, one.backend.cancel, first) is True

        for number, kind in enumerate(kinds):
            # The third request does not fit beside the two holds.
            none = {"mode": EXCLUSIVE} if kind["mode"] == READ else {"permits": 2}
            asyncio.run(main(f"{key}_{number}", kind, none))

    def test_a_loop_downgrades_and_acknowledges_as_a_thread_does(self, one: Contender, key: str) -> None:
        self.warm(one, key)
        mine = ask(key)
        backend = one.backend

        async def main() -> None:
            held = await self.asked(one, mine)
            if isinstance(backend, PushesHolds):
                for number in (held.number, held.number + 1):
                    thread = await asyncio.to_thread(backend.acknowledge, [(mine, number)])
                    assert await answer(one, backend.acknowledge, [(mine, number)]) == thread
            if isinstance(backend, Reads):
                assert await answer(one, backend.downgrade, mine) is True
                assert await answer(one, backend.downgrade, ask(key)) is False

        asyncio.run(main())

    def test_a_loop_counts_latches_as_a_thread_does(self, one: Contender, key: str) -> None:
        backend = one.backend
        if not isinstance(backend, Latches):
            return
        key = key.replace(":", "/latch:", 1)
        # The first call finds out whether the server has latches.
        assert backend.look_at_latches([key]) == [None]

        async def main() -> None:
            made = await answer(one, backend.make_latch, key, 2, LONG, "maker")
            assert (made.maker, made.left) == ("maker", 2)
            for part, left in (("a", 1), ("a", 1), ("b", 0)):
                assert (await answer(one, backend.count_latch_down, key, 1, part, made.life)).left == left
                assert [state and state.left for state in backend.look_at_latches([key])] == [left]
            [seen] = await answer(one, backend.look_at_latches, [key], False)
            assert seen.left == 0
            assert await answer(one, backend.count_latch_down, key, 1, "c", "another") is None
            assert await answer(one, backend.delete_latch, key, "another") is False
            assert await answer(one, backend.delete_latch, key, made.life) is True
            assert await answer(one, backend.look_at_latches, [key], False) == [None]
            assert await answer(one, backend.count_latch_down, key, 1, "c", made.life) is None
            assert await answer(one, backend.delete_latch, key, made.life) is False

        asyncio.run(main())

    def test_the_usual_needs_no_thread(self, one: Contender, key: str) -> None:
        self.warm(one, key)

        async def main() -> None:
            begun = begin(one, one.backend.request, ask(key))
            assert begun is not None, "nothing was sent"
            assert isinstance(await begun, Acquired)

        asyncio.run(main())

    def test_many_calls_at_once_have_an_answer_each(self, one: Contender, key: str) -> None:
        self.warm(one, key)
        requests = [ask(f"{key}_{number}") for number in range(100)]

        async def main() -> None:
            answers = await asyncio.gather(*[self.asked(one, mine) for mine in requests])
            assert answers == [one.backend.request(mine) for mine in requests]

        asyncio.run(main())

    def test_what_was_begun_is_over_before_its_task_is_cancelled(self, one: Contender, key: str) -> None:
        self.warm(one, key)
        mine = ask(key)

        async def main() -> None:
            begun = begin(one, one.backend.request, mine)
            assert begun is not None

            async def wait() -> None:
                await begun

            task = asyncio.create_task(wait())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert begun.done()
            assert not begun.cancelled()

        asyncio.run(main())
        assert one.backend.release(mine), "it was carried out"

    def test_what_is_asked_after_a_posted_release_finds_the_key_free(self, one: Contender, key: str) -> None:
        self.warm(one, key)

        async def main() -> None:
            assert isinstance(one.backend, Posts)
            for _ in range(20):
                mine = ask(key, wait=False)
                assert isinstance(await self.asked(one, mine), Acquired)
                await answer(one, one.backend.post, mine, told.append)

        told: list[bool | None] = []
        asyncio.run(main())
        assert told == []
