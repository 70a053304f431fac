"""The conformance kit for backends with the capabilities `inspect` and `breaks`: what is shown, and broken.

Subclass it as `distlock.testing.ProtocolConformance`, with a fixture ``url``.
"""

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
from distlock.testing.protocol import LONG, Contender, ProtocolFixtures


@runtime_checkable
class InspectableBackend(Announces, Breaks, Protocol):
    """The backend methods that the kit calls: all that an operator can do."""


def ask(contender: Contender, key: str, wait: bool = True) -> LockRequest:
    """As the engine asks: the token begins with the process."""
    return LockRequest(key, inspectable(contender).process + secrets.token_hex(16), LONG, 1, wait)


def inspectable(contender: Contender) -> InspectableBackend:
    assert isinstance(contender.backend, InspectableBackend)
    assert contender.backend.capabilities.inspect
    assert contender.backend.capabilities.breaks
    return contender.backend


class UnfairInspectionConformance(ProtocolFixtures):
    #: The most that a lease of `LONG` seconds may be shown to have left.
    longest = LONG
    #: If two operators break one hold on several servers, each may end it on some, and say that it did.
    both_may_break = False

    @pytest.fixture
    def look(self, contender: Callable[[], Contender]) -> InspectableBackend:
        """The backend of an onlooker: a client that holds nothing and waits for nothing."""
        return inspectable(contender())

    def test_where_nobody_is_nobody_is_shown(self, look: InspectableBackend, key: str) -> None:
        state = look.inspect(key)
        assert (state.holder, list(state.queue), state.waiting) == (None, [], 0)

    def test_the_holder_is_shown_by_its_process(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        held = one.held(ask(one, key))
        state = look.inspect(key)
        assert state.holder is not None
        assert state.holder.process == inspectable(one).process
        assert state.number == held.number
        leased = one.backend.capabilities.lease
        assert state.remaining is not None
        assert 0 < state.remaining <= self.longest if leased else state.remaining == math.inf

    def test_looking_takes_nothing(self, one: Contender, look: InspectableBackend, key: str) -> None:
        look.inspect(key)
        one.held(ask(one, key))
        look.inspect(key)
        assert isinstance(one.backend.request(ask(one, f"{key}_other")), Acquired)

    def test_what_a_process_says_of_a_key_is_shown_with_it(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        mine = ask(one, key)
        one.held(mine)
        whole = StatusRow(key, "shop.views.reduce", 1_700_000_000.5, 3, "shop.views.wait", 1_700_000_001.5)
        for row in (whole, replace(whole, mode=READ, holding=4), replace(whole, mode=PERMIT, limit=10)):
            inspectable(one).announce("web1", 4711, [row], [], LONG)
            assert look.inspect(key).holder == SeenProcess(inspectable(one).process, "web1", 4711, row)
            assert [seen for seen in look.announced(key) if seen.row == row] == [look.inspect(key).holder]

    def test_what_is_said_is_added_to_until_it_is_gone(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        rows = {number: StatusRow(f"{key}_{number}", "", 1_700_000_000.0) for number in range(5)}

        def said() -> set[str]:
            return {seen.row.key for seen in look.announced(key) if seen.row is not None}

        assert not inspectable(one).announce("web1", 1, [rows[0], rows[1]], [], LONG)
        assert inspectable(one).announce("web1", 1, [rows[2]], [rows[0].key], LONG)
        assert said() == {rows[1].key, rows[2].key}
        inspectable(one).announce("web1", 1, [], [rows[1].key, rows[2].key], LONG)
        assert said() == set()

    def test_only_the_keys_that_begin_so_are_told(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        # Names may hold what a pattern would take for a sign of its own.
        keys = [f"{key}*[a]?_1", f"{key}x[a]y_1"]
        inspectable(one).announce(
            "web1", 1, [StatusRow(each, "", 1_700_000_000.0) for each in keys], [], LONG
        )
        assert [seen.row.key for seen in look.announced(f"{key}*[a]?") if seen.row] == keys[:1]

    def test_what_many_say_is_all_told(
        self, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        everybody = [contender() for _ in range(3)]
        for number, each in enumerate(everybody):
            rows = [StatusRow(f"{key}_{number}_{row}", "", 1_700_000_000.0) for row in range(700)]
            inspectable(each).announce("web1", number, rows, [], LONG)
        told = [(seen.pid, seen.row.key) for seen in look.announced(key) if seen.row is not None]
        assert sorted(told) == sorted((pid, f"{key}_{pid}_{row}") for pid in range(3) for row in range(700))

    def test_who_closes_says_nothing_any_more(
        self, one: Contender, look: InspectableBackend, key: str
    ) -> None:
        inspectable(one).announce("web1", 1, [StatusRow(key, "", 1_700_000_000.0)], [], LONG)
        before = inspectable(one).process
        one.backend.close()
        assert list(look.announced(key)) == []
        assert inspectable(one).process != before

    # -- breaking --------------------------------------------------------------------------------

    def test_a_broken_hold_is_over(self, one: Contender, look: InspectableBackend, key: str) -> None:
        mine = ask(one, key)
        held = one.held(mine)
        assert look.break_hold(key, held.number)
        assert look.inspect(key).holder is None
        assert one.backend.renew([mine]) == [False]
        assert not one.backend.release(mine)

    def test_the_next_in_the_queue_gets_it(
        self, one: Contender, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        held = one.held(ask(one, key))
        following = contender()
        wants = ask(following, key)
        following.queued(wants)
        assert look.break_hold(key, held.number)
        assert following.until_held(wants).number > held.number

    def test_another_hold_is_left_alone(self, one: Contender, look: InspectableBackend, key: str) -> None:
        first = ask(one, key)
        seen = one.held(first).number
        one.backend.release(first)
        assert not look.break_hold(key, seen), "nobody holds it"
        mine = ask(one, key)
        held = one.held(mine)
        assert not look.break_hold(key, seen)
        assert not look.break_hold(key, held.number + 1)
        assert one.backend.renew([mine]) == [True]
        assert look.locked(key)

    def test_of_two_that_break_at_once_one_does(
        self, one: Contender, contender: Callable[[], Contender], key: str
    ) -> None:
        held = one.held(ask(one, key))
        onlookers = [inspectable(contender()) for _ in range(2)]
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
        mine = [replace(ask(holder, key), **how) for holder in holders]
        for holder, one in zip(holders, mine, strict=True):
            holder.held(one)
        # A request without room beside them: a writer, or both permits.
        wants = replace(ask(waiter, key), **others)
        waiter.queued(wants)
        processes = {inspectable(holder).process for holder in holders}
        state = look.inspect(key)
        assert state.holder is not None
        assert state.holder.process in processes
        assert (state.mode, state.others) == (how["mode"], 1)
        assert {state.holder.process, *(seen.process for seen in state.beside)} == processes
        # Two permits are out, one of each holder, and there are no more.
        assert (state.out, state.limit) == ((2, 2) if how["mode"] == PERMIT else (0, 0))
        assert [seen.process for seen in state.queue] == [inspectable(waiter).process]
        assert state.number is not None
        assert not look.break_hold(key, state.number + 1000)
        assert [holder.backend.renew([one]) for holder, one in zip(holders, mine, strict=True)] == [
            [True]
        ] * 2
        for _ in holders:
            # Holds of one number end at once, and each that is seen can be ended.
            state = look.inspect(key)
            if state.holder is not None and state.holder.process in processes:
                assert state.number is not None
                assert look.break_hold(key, state.number)
        assert [holder.backend.renew([one]) for holder, one in zip(holders, mine, strict=True)] == [
            [False]
        ] * 2
        waiter.held(wants)


class InspectionConformance(UnfairInspectionConformance):
    def test_the_queue_is_shown_in_its_order(
        self, one: Contender, contender: Callable[[], Contender], look: InspectableBackend, key: str
    ) -> None:
        one.held(ask(one, key))
        waiting = [contender() for _ in range(3)]
        for waiter in waiting:
            waiter.queued(ask(waiter, key))
        state = look.inspect(key)
        assert [seen.process for seen in state.queue] == [inspectable(one).process for one in waiting]
        assert state.waiting == 3
