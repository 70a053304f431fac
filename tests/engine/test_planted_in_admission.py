"""The tests of admission are tested: every planted bug is found by the test that is named beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock.errors import TooManyWaiters
from tests.engine import planted_in_admission as planted
from tests.engine import test_admission as tests
from tests.engine import test_admission_in_crowds as crowds
from tests.engine.scene import Rush

#: A bug in admission, and the test that kills it.
PLANTED: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    planted.nobody_is_refused: tests.test_a_line_that_is_too_long_is_refused_and_a_shorter_one_is_not,
    planted.who_is_next_may_be_refused: tests.test_who_is_next_comes_in_however_long_it_takes,
    planted.the_open_gap_is_ignored: tests.test_the_time_since_the_last_grant_counts,
    planted.the_open_gap_counts_for_everybody: tests.test_one_slow_holder_does_not_make_the_whole_line_slow,
    planted.only_holds_of_ones_own_count: tests.test_the_turns_of_other_processes_count,
    planted.quiet_time_counts: tests.test_a_quiet_hour_is_no_wait,
    planted.time_outs_do_not_count: tests.test_waits_that_timed_out_count,
    planted.trying_once_counts: tests.test_who_tries_once_counts_for_nothing,
    planted.dropped_rooms_are_forgotten: tests.test_a_line_that_was_slow_is_remembered_when_all_have_gone,
    planted.nothing_is_forgotten: tests.test_what_is_remembered_is_forgotten_in_time,
    planted.everything_is_remembered: tests.test_only_so_many_names_that_were_waited_for_are_remembered,
    planted.patience_without_limit_ends: tests.test_patience_without_limit_is_never_refused,
    planted.what_is_unknown_is_slow: tests.test_the_first_burst_comes_in,
    planted.what_was_slow_stays_slow: tests.test_a_line_that_becomes_fast_is_long_again_soon,
    planted.a_few_grants_tell_all: tests.test_a_few_quick_grants_do_not_make_a_slow_line_quick,
    planted.a_longer_line_is_for_nothing: tests.test_a_line_longer_than_what_is_remembered_is_as_slow,
    planted.the_longest_grant_counts_for_everybody: lambda: crowds.test_one_slow_grant_refuses_nobody(1.0, 2),
}


@pytest.mark.parametrize(("bug", "test"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, TooManyWaiters, pytest.fail.Exception)):
        test()


@pytest.mark.parametrize("bug", [planted.nobody_is_refused, planted.only_holds_of_ones_own_count])
def test_without_the_turns_of_others_many_wait_in_vain(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    rush = Rush(processes=2)
    assert rush.in_vain > 0.3 * rush.admitted
