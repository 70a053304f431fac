"""The conformance kit, call by call: an operator inspects a key, breaks its hold, or requests its release."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import pytest

from distlock.backends.base import PERMIT, READ, Acquired, LockRequest
from distlock.backends.inspectable import Announces, Breaks, SeenProcess, StatusRow
from distlock.backends.protocols import Notifies
from distlock.testing.protocol_fixtures import LONG, Contender, ProtocolFixtures, ask


@runtime_checkable
class InspectableBackend(Announces, Breaks, Protocol):
    """A backend with all methods that an operator needs."""


def request_of(contender: Contender, key: str, wait: bool = True) -> LockRequest:
    """Return a lock request whose token begins with the process id, as those of the engine do."""
    return LockRequest(key, inspectable_backend(contender).process + secrets.token_hex(16), LONG, 1, wait)


def inspectable_backend(contender: Contender) -> InspectableBackend:
    assert isinstance(contender.backend, InspectableBackend)
    assert contender.backend.capabilities.inspect
    assert contender.backend.capabilities.breaks
    return contender.backend


class UnfairInspectionConformance(ProtocolFixtures):
    """Tests for backends with the capabilities `inspect` and `breaks`, also those without a queue."""

    #: The longest remaining time that may be shown for a lease of `LONG` seconds.
    longest = LONG
    #: Whether two operators who break one hold on several servers may both succeed, each on some of them.
    both_may_break = False

    @pytest.fixture
    def look(self, contender: Callable[[], Contender]) -> InspectableBackend:
        """Return the backend of a client that holds nothing and waits for nothing."""
        return inspectable_backend(contender())

    def test_where_nobody_is_nobody_is_shown(self, look: InspectableBackend, key: str) -> None:
        state = look.inspect(key)
        assert (state.holder, list(state.queue), state.waiting) == (None, [], 0)

    def test_the_holder_is_shown_by_its_process(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        held = one.held(request_of(one, key))
        state = look.inspect(key)
        assert state.holder is not None
        assert state.holder.process == inspectable_backend(one).process
        assert state.number == held.number
        leased = one.backend.capabilities.lease
        assert state.remaining is not None
        assert 0 < state.remaining <= self.longest if leased else state.remaining == math.inf

    def test_looking_takes_nothing(self, one: Contender, look: InspectableBackend, key: str) -> None:
        look.inspect(key)
        one.held(request_of(one, key))
        look.inspect(key)
        assert isinstance(one.backend.request(request_of(one, f"{key}_other")), Acquired)

    def test_what_a_process_says_of_a_key_is_shown_with_it(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        mine = request_of(one, key)
        one.held(mine)
        whole = StatusRow(key, "shop.views.reduce", 1_700_000_000.5, 3, "shop.views.wait", 1_700_000_001.5)
        for row in (whole, replace(whole, mode=READ, holding=4), replace(whole, mode=PERMIT, limit=10)):
            inspectable_backend(one).announce("web1", 4711, [row], [], LONG)
            assert look.inspect(key).holder == SeenProcess(
                inspectable_backend(one).process, "web1", 4711, row
            )
            assert [seen for seen in look.announced(key) if seen.row == row] == [look.inspect(key).holder]

    def test_what_is_said_is_added_to_until_it_is_gone(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        rows = {number: StatusRow(f"{key}_{number}", "", 1_700_000_000.0) for number in range(5)}

        def said() -> set[str]:
            return {seen.row.key for seen in look.announced(key) if seen.row is not None}

        assert not inspectable_backend(one).announce("web1", 1, [rows[0], rows[1]], [], LONG)
        assert inspectable_backend(one).announce("web1", 1, [rows[2]], [rows[0].key], LONG)
        assert said() == {rows[1].key, rows[2].key}
        inspectable_backend(one).announce("web1", 1, [], [rows[1].key, rows[2].key], LONG)
        assert said() == set()

    def test_only_the_keys_that_begin_so_are_told(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        # Names may have characters that are special in a pattern.
        keys = [f"{key}*[a]?_1", f"{key}x[a]y_1"]
        inspectable_backend(one).announce(
            "web1", 1, [StatusRow(each, "", 1_700_000_000.0) for each in keys], [], LONG
        )
        assert [seen.row.key for seen in look.announced(f"{key}*[a]?") if seen.row] == keys[:1]

    def test_what_many_say_is_all_told(
        self, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        everybody = [contender() for _ in range(3)]
        for number, each in enumerate(everybody):
            rows = [StatusRow(f"{key}_{number}_{row}", "", 1_700_000_000.0) for row in range(700)]
            inspectable_backend(each).announce("web1", number, rows, [], LONG)
        told = [(seen.pid, seen.row.key) for seen in look.announced(key) if seen.row is not None]
        assert sorted(told) == sorted((pid, f"{key}_{pid}_{row}") for pid in range(3) for row in range(700))

    def test_who_closes_says_nothing_any_more(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        inspectable_backend(one).announce("web1", 1, [StatusRow(key, "", 1_700_000_000.0)], [], LONG)
        before = inspectable_backend(one).process
        one.backend.close()
        assert list(look.announced(key)) == []
        assert inspectable_backend(one).process != before

    # -- breaking --------------------------------------------------------------------------------

    def test_a_broken_hold_is_over(self, one: Contender, look: InspectableBackend, key: str) -> None:
        mine = request_of(one, key)
        held = one.held(mine)
        assert look.break_hold(key, held.number)
        assert look.inspect(key).holder is None
        assert one.backend.renew([mine]) == [False]
        assert not one.backend.release(mine)

    def test_the_next_in_the_queue_gets_it(
        self, one: Contender, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        held = one.held(request_of(one, key))
        following = contender()
        wants = request_of(following, key)
        following.queued(wants)
        assert look.break_hold(key, held.number)
        assert following.until_held(wants).number > held.number

    def test_another_hold_is_left_alone(self, one: Contender, look: InspectableBackend, key: str) -> None:
        first = request_of(one, key)
        seen = one.held(first).number
        one.backend.release(first)
        assert not look.break_hold(key, seen), "nobody holds it"
        mine = request_of(one, key)
        held = one.held(mine)
        assert not look.break_hold(key, seen)
        assert not look.break_hold(key, held.number + 1)
        assert one.backend.renew([mine]) == [True]
        assert look.locked(key)

    def test_of_two_that_break_at_once_one_does(
        self, one: Contender, contender: Callable[[], Contender], key: str
    ) -> None:
        held = one.held(request_of(one, key))
        onlookers = [inspectable_backend(contender()) for _ in range(2)]
        answers: list[bool] = []
        threads = [
            threading.Thread(target=lambda each=each: answers.append(each.break_hold(key, held.number)))
            for each in onlookers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        both = answers == [True, True] and self.both_may_break
        assert both or sorted(answers) == [False, True]

    # -- what several hold -----------------------------------------------------------------------

    def test_readers_are_shown_and_broken_as_other_holders(
        self, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        if look.capabilities.read:
            self.show_and_break(contender, look, key, {"mode": READ}, {})

    def test_holders_of_permits_are_shown_and_broken_as_others(
        self, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        if look.capabilities.permits:
            both = {"mode": PERMIT, "limit": 2, "permits": 2}
            self.show_and_break(contender, look, key, {**both, "permits": 1}, both)

    def show_and_break(
        self,
        contender: Callable[[], Contender],
        look: InspectableBackend,
        key: str,
        how: dict[str, Any],
        others: dict[str, Any],
    ) -> None:
        holders, waiter = [contender(), contender()], contender()
        mine = [replace(request_of(holder, key), **how) for holder in holders]
        for holder, one in zip(holders, mine, strict=True):
            holder.held(one)
        # The waiter wants what does not fit beside the holders: to write, or both permits.
        wants = replace(request_of(waiter, key), **others)
        waiter.queued(wants)
        processes = {inspectable_backend(holder).process for holder in holders}
        state = look.inspect(key)
        assert state.holder is not None
        assert state.holder.process in processes
        assert (state.mode, state.others) == (how["mode"], 1)
        assert {state.holder.process, *(seen.process for seen in state.beside)} == processes
        # Each holder has one of the two permits.
        assert (state.out, state.limit) == ((2, 2) if how["mode"] == PERMIT else (0, 0))
        assert [seen.process for seen in state.queue] == [inspectable_backend(waiter).process]
        assert state.number is not None
        assert not look.break_hold(key, state.number + 1000)
        assert [holder.backend.renew([one]) for holder, one in zip(holders, mine, strict=True)] == [
            [True]
        ] * 2
        for _ in holders:
            # Holds with the same number end together; any shown hold can be broken.
            state = look.inspect(key)
            if state.holder is not None and state.holder.process in processes:
                assert state.number is not None
                assert look.break_hold(key, state.number)
        assert [holder.backend.renew([one]) for holder, one in zip(holders, mine, strict=True)] == [
            [False]
        ] * 2
        waiter.held(wants)


class InspectionConformance(UnfairInspectionConformance):
    """Tests for backends with the capabilities `inspect` and `breaks` that are `fair`."""

    def test_the_queue_is_shown_in_its_order(
        self, one: Contender, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        one.held(request_of(one, key))
        waiting = [contender() for _ in range(3)]
        for waiter in waiting:
            waiter.queued(request_of(waiter, key))
        state = look.inspect(key)
        assert [seen.process for seen in state.queue] == [inspectable_backend(one).process for one in waiting]
        assert state.waiting == 3


def notifies(contender: Contender) -> Notifies:
    assert isinstance(contender.backend, Notifies)
    assert contender.backend.capabilities.notify
    return contender.backend


def look_after(contender: Contender, *requests: LockRequest) -> list[tuple[str, str]]:
    """Renew, and publish if there is no lease, as the maintenance thread does, to receive release requests.

    Return the key and token of each.
    """
    backend = contender.backend
    backend.renew(requests)
    if not backend.capabilities.lease and isinstance(backend, Announces):
        backend.announce("web1", 1, [], [], LONG)
    return contender.sink.requests


class NotifyConformance(ProtocolFixtures):
    """Tests for backends with the capability `notify`."""

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
