"""The conformance kit, first half: what every backend owes the engine, call by call.

Subclass it in a test module and give it a fixture ``url`` (and ``options``, where the backend needs some)::

    class TestMyBackend(ProtocolConformance):
        @pytest.fixture
        def url(self):
            return "mine://localhost"
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.base import PERMIT, READ, Acquired, Backend, Busy, LockRequest, Queued
from distlock.backends.optional import Awaits, Posts, PushesHolds, Reads
from distlock.backends.registry import create
from distlock.testing.places import a_late_cancel_keeps_the_hold, polls_take_no_second_place
from distlock.testing.sink import RecordingSink

#: A lifetime that no test outlives, seconds.
LONG = 60.0


def ask(key: str, ttl: float = LONG, wait: bool = True, span: int = 1, **more: Any) -> LockRequest:
    return LockRequest(key, secrets.token_hex(16), ttl, span, wait, **more)


def read(key: str, ttl: float = LONG, wait: bool = True) -> LockRequest:
    return ask(key, ttl, wait, mode=READ)


def permit(key: str, limit: int, permits: int = 1, ttl: float = LONG, wait: bool = True) -> LockRequest:
    return ask(key, ttl, wait, mode=PERMIT, limit=limit, permits=permits)


class Contender:
    """One client of the lock service, as one process has one."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.sink = RecordingSink()
        backend.open(self.sink)

    def held(self, ask: LockRequest) -> Acquired:
        answer = self.backend.request(ask)
        assert isinstance(answer, Acquired), f"expected Held, got {answer}"
        return answer

    def queued(self, ask: LockRequest) -> Queued:
        answer = self.backend.request(ask)
        assert isinstance(answer, Queued), f"expected Queued, got {answer}"
        return answer

    def in_line(self, ask: LockRequest) -> LockRequest:
        """Have *request* wait. A lock service may learn only by the second request where to send hints."""
        self.queued(ask)
        self.queued(ask)
        return ask

    def until_held(self, ask: LockRequest, patience: float = 10.0) -> Acquired:
        """Ask again as the engine does: at hints, and after the time that the backend says."""
        polls = threading.Event()
        rest = patience
        while True:
            answer = self.backend.request(ask)
            if isinstance(answer, Acquired):
                return answer
            assert isinstance(answer, Queued)
            assert rest > 0, f"not held within {patience:g} seconds of polling"
            pause = min(answer.poll, rest)
            polls.wait(pause)
            rest -= pause


class ProtocolFixtures:
    @pytest.fixture
    def options(self) -> dict[str, Any]:
        return {}

    @pytest.fixture
    def key(self) -> str:
        return f"kit:product_{secrets.token_hex(4)}"

    @pytest.fixture
    def contender(self, url: str, options: dict[str, Any]) -> Iterator[Callable[[], Contender]]:
        made: list[Contender] = []

        def make() -> Contender:
            made.append(Contender(create(url, **options)))
            return made[-1]

        yield make
        for one in made:
            one.backend.close()

    @pytest.fixture
    def one(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def two(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def three(self, contender: Callable[[], Contender]) -> Contender:
        return contender()

    @pytest.fixture
    def four(self, contender: Callable[[], Contender]) -> Contender:
        return contender()


class UnfairProtocolConformance(ProtocolFixtures):
    """What those owe, too, in which nobody stands in line."""

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
    """For backends that are `fair`, as one is that says nothing of it."""

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
        # A lock service may learn only now where to send hints.
        two.queued(second)
        one.backend.release(first)
        assert two.sink.wait_for_hint(key)
        two.held(second)

    def test_asking_again_while_queued_takes_no_second_place(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        polls_take_no_second_place(one, two, three, ask(key), ask(key), ask(key))

    def test_who_cancels_too_late_is_told_and_keeps_the_hold(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        a_late_cancel_keeps_the_hold(one, two, three, ask(key), ask(key), ask(key))


class NumberConformance(ProtocolFixtures):
    """For lock services whose numbers grow, so that fences can be made of them."""

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
