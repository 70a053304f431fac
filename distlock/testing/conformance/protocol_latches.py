"""The conformance kit: latches, call by call."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from distlock import clock
from distlock.backends.latches import Latches, LatchState
from distlock.testing.protocol_fixtures import LONG, Contender, ProtocolFixtures, RecordingSink

#: Seconds of a ttl whose end a test waits for.
SHORT = 1.0
#: Seconds after which a test fails. Only a broken backend takes so long.
PATIENCE = 10.0


class LatchContender:
    """The latches of a contender's backend, with shorter calls."""

    def __init__(self, contender: Contender) -> None:
        assert isinstance(contender.backend, Latches)
        assert contender.backend.capabilities.latch
        self.latches: Latches = contender.backend
        self.sink: RecordingSink = contender.sink

    def make(self, key: str, total: int, ttl: float = LONG) -> LatchState:
        return self.latches.make_latch(key, total, ttl, secrets.token_hex(16))

    def count(self, key: str, by: int = 1, part: str = "") -> int:
        state = self.latches.count_latch_down(key, by, part or secrets.token_hex(16))
        assert state is not None, "it is gone"
        return state.left

    def look(self, key: str, watch: bool = False) -> LatchState | None:
        (state,) = self.latches.look_at_latches([key], watch)
        return state

    def left(self, key: str) -> int:
        state = self.look(key)
        assert state is not None, "it is gone"
        return state.left

    def wait_until_gone(self, key: str) -> None:
        pause, until = threading.Event(), clock.now() + PATIENCE
        while self.look(key) is not None:
            assert clock.now() < until, f"not gone within {PATIENCE:g} seconds"
            pause.wait(0.05)


class LatchProtocolConformance(ProtocolFixtures):
    """Tests for backends with the capability `latch`."""

    @pytest.fixture
    def key(self) -> str:
        return f"kit/latch:import_{secrets.token_hex(4)}"

    @pytest.fixture
    def some(self, contender: Callable[[], Contender]) -> Callable[[], LatchContender]:
        return lambda: LatchContender(contender())

    @pytest.fixture
    def one_of(self, some: Callable[[], LatchContender]) -> LatchContender:
        return some()

    @pytest.fixture
    def other(self, some: Callable[[], LatchContender]) -> LatchContender:
        return some()

    # -- making ----------------------------------------------------------------------------------

    def test_one_that_nobody_made_is_not_there(self, one_of: LatchContender, key: str) -> None:
        assert one_of.look(key) is None
        assert one_of.latches.count_latch_down(key, 1, "part") is None
        assert one_of.look(key) is None

    def test_it_is_made_once(self, one_of: LatchContender, other: LatchContender, key: str) -> None:
        made = one_of.latches.make_latch(key, 3, LONG, "first")
        assert (made.maker, made.total, made.left) == ("first", 3, 3)
        assert 0 < made.ttl <= LONG
        for again in (one_of, other):
            state = again.latches.make_latch(key, 5, LONG, "second")
            assert (state.maker, state.total, state.left) == ("first", 3, 3)

    def test_one_of_nothing_is_open_at_once(self, one_of: LatchContender, key: str) -> None:
        assert one_of.make(key, 0).left == 0
        assert one_of.left(key) == 0

    def test_different_names_are_different_latches(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        endings = [
            "",
            " ",
            "/",
            "/1",
            "}",
            "{",
            ":watched",
            "*",
            "%",
            "%25",
            "\u00e9",
            "e\u0301",
            "A",
            "a",
            "\U0001f600",
        ]
        endings += ["..", "../1", "'", '"', "x" * 200, "x" * 199 + "y"]
        for number, ending in enumerate(endings):
            one_of.make(key + ending, number + 1)
        states = other.latches.look_at_latches([key + ending for ending in endings])
        assert [state and state.left for state in states] == [number + 1 for number in range(len(endings))]

    # -- counting --------------------------------------------------------------------------------

    def test_it_goes_down_to_0_and_not_below(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        one_of.make(key, 5)
        assert other.count(key) == 4
        assert one_of.count(key, by=2) == 2
        assert other.count(key, by=3) == 0
        assert one_of.count(key) == 0
        assert other.left(key) == 0

    def test_a_part_counts_once(self, one_of: LatchContender, other: LatchContender, key: str) -> None:
        one_of.make(key, 3)
        assert one_of.count(key, part="orders") == 2
        assert one_of.count(key, part="orders") == 2
        assert other.count(key, part="orders", by=2) == 2
        assert other.count(key, part="products") == 1
        assert one_of.count(key, part="orders") == 1

    def test_many_count_at_once_and_none_is_missed(
        self, some: Callable[[], LatchContender], key: str
    ) -> None:
        callers = [some() for _ in range(4)]
        callers[0].make(key, 100)
        with ThreadPoolExecutor(8) as pool:
            counted = list(pool.map(lambda number: callers[number % 4].count(key), range(99)))
        assert sorted(counted) == list(range(1, 100))
        assert callers[0].left(key) == 1

    # -- its life --------------------------------------------------------------------------------

    def test_it_is_gone_when_its_ttl_is_over(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        one_of.make(key, 1, ttl=SHORT)
        other.wait_until_gone(key)
        assert one_of.latches.count_latch_down(key, 1, "part") is None
        assert one_of.look(key) is None

    def test_an_open_one_is_gone_then_too(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        one_of.make(key, 1, ttl=SHORT)
        assert one_of.count(key) == 0
        assert other.left(key) == 0
        other.wait_until_gone(key)

    def test_a_count_starts_its_life_anew(self, one_of: LatchContender, key: str) -> None:
        one_of.make(key, 100, ttl=3 * SHORT)
        pause, until = threading.Event(), clock.now() + 4 * SHORT
        while clock.now() < until:
            one_of.count(key)
            pause.wait(SHORT / 4)
        assert one_of.left(key) > 0

    def test_a_look_and_a_repetition_don_t(self, one_of: LatchContender, key: str) -> None:
        one_of.make(key, 2, ttl=SHORT)
        one_of.count(key, part="orders")
        pause, until = threading.Event(), clock.now() + PATIENCE
        while one_of.latches.count_latch_down(key, 1, "orders") is not None:
            assert clock.now() < until
            pause.wait(0.05)
            one_of.look(key, watch=True)
            one_of.latches.make_latch(key, 2, SHORT, "again") if one_of.look(key) else None

    def test_a_new_one_knows_nothing_of_the_old(self, one_of: LatchContender, key: str) -> None:
        one_of.make(key, 1, ttl=SHORT)
        one_of.count(key, part="orders")
        one_of.wait_until_gone(key)
        one_of.make(key, 2)
        assert one_of.left(key) == 2
        assert one_of.count(key, part="orders") == 1

    # -- its lives -------------------------------------------------------------------------------

    def test_a_count_of_a_life_that_is_over_counts_nothing(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        # The latches of all lives have the same count. Some calls come two lives late.
        lives = [one_of.make(key, 2).life]
        for part in ("orders", "products"):
            other.count(key)
            assert other.latches.delete_latch(key, lives[-1])
            assert one_of.latches.count_latch_down(key, 1, part, lives[-1]) is None
            lives.append(other.make(key, 2).life)
            for late in lives[:-1]:
                assert one_of.latches.count_latch_down(key, 1, part, late) is None
            assert one_of.left(key) == 2
        assert len(set(lives)) == len(lives)
        state = one_of.latches.count_latch_down(key, 1, "orders", lives[-1])
        assert state is not None
        assert (state.left, state.life) == (1, lives[-1])
        (looked,) = one_of.latches.look_at_latches([key])
        assert looked is not None
        assert looked.life == lives[-1]

    def test_a_count_of_one_whose_ttl_is_over_counts_nothing(self, one_of: LatchContender, key: str) -> None:
        first = one_of.make(key, 2, ttl=SHORT)
        one_of.wait_until_gone(key)
        second = one_of.make(key, 2)
        assert second.life != first.life
        assert one_of.latches.count_latch_down(key, 1, "orders", first.life) is None
        assert not one_of.latches.delete_latch(key, first.life)
        assert one_of.left(key) == 2

    def test_to_delete_a_life_that_is_over_deletes_nothing(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        first = one_of.make(key, 2)
        assert other.latches.delete_latch(key, first.life)
        assert not other.latches.delete_latch(key, first.life)
        one_of.make(key, 2)
        assert not other.latches.delete_latch(key, first.life)
        assert one_of.left(key) == 2

    def test_of_those_that_delete_it_at_once_one_has_done_it(
        self, some: Callable[[], LatchContender], key: str
    ) -> None:
        callers = [some() for _ in range(4)]
        for one in callers:
            one.look(key)
        with ThreadPoolExecutor(len(callers)) as pool:
            for turn in range(6):
                made, together = callers[0].make(key, 1), threading.Barrier(len(callers))
                life = made.life if turn % 2 else ""

                def delete(
                    one: LatchContender, life: str = life, together: threading.Barrier = together
                ) -> bool:
                    together.wait(PATIENCE)
                    return one.latches.delete_latch(key, life)

                assert sorted(pool.map(delete, callers)) == [False, False, False, True]

    # -- its end ---------------------------------------------------------------------------------

    def test_one_that_is_deleted_is_gone(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        assert not one_of.latches.delete_latch(key), "nobody made it"
        for count in (0, 1):
            one_of.make(key, 2)
            if count:
                one_of.count(key, by=2, part="orders")
            assert other.latches.delete_latch(key)
            assert one_of.look(key) is None
            assert one_of.latches.count_latch_down(key, 1, "part") is None
            assert not one_of.latches.delete_latch(key)
        one_of.make(key, 3)
        assert other.count(key, part="orders") == 2, "a new one knows nothing of the old"

    def test_those_that_watch_are_told_of_its_end(self, some: Callable[[], LatchContender], key: str) -> None:
        watching = [some() for _ in range(3)]
        watching[0].make(key, 1)
        for one in watching:
            assert one.look(key, watch=True)
        assert watching[0].latches.delete_latch(key)
        for one in watching:
            assert one.sink.wait_for_notification(key)

    # -- notifications ---------------------------------------------------------------------------

    def test_those_that_watch_are_told_when_it_opens(
        self, some: Callable[[], LatchContender], key: str
    ) -> None:
        watching = [some() for _ in range(3)]
        watching[0].make(key, 2)
        for one in watching:
            assert one.look(key, watch=True)
        watching[0].count(key)
        watching[0].count(key)
        for one in watching:
            assert one.sink.wait_for_notification(key)

    def test_a_watch_is_set_anew_for_a_new_one(
        self, one_of: LatchContender, other: LatchContender, key: str
    ) -> None:
        one_of.make(key, 1, ttl=SHORT)
        other.look(key, watch=True)
        one_of.count(key)
        assert other.sink.wait_for_notification(key)
        other.wait_until_gone(key)
        one_of.make(key, 1)
        other.sink.notified_keys.clear()
        other.look(key, watch=True)
        one_of.count(key)
        assert other.sink.wait_for_notification(key)
