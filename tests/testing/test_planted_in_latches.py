"""The kit for latches is tested: every planted bug is found by the test that is named beside it."""

from __future__ import annotations

import pytest

# Each suite below would have them anew otherwise.
import distlock.testing.conformance  # noqa: F401
from tests.testing import planted_in_latches
from tests.testing.test_planted_bugs import WITHOUT

pytest_plugins = ["pytester"]

#: A bug in the lock service, and the test of the kit that kills it.
IN_THE_SERVICE = {
    "TheMissingAreOpen": "one_that_nobody_made_is_not_there",
    "CountingMakes": "one_that_nobody_made_is_not_there",
    "MakingMakesAnew": "it_is_made_once",
    "CountsGoBelowNothing": "it_goes_down_to_0_and_not_below",
    "RepetitionsCount": "a_part_counts_once",
    "ReadsThenWrites": "many_count_at_once_and_none_is_missed",
    "NothingEnds": "it_is_gone_when_its_ttl_is_over",
    "OpenForEver": "an_open_one_is_gone_then_too",
    "CountsDontProlong": "a_count_starts_its_life_anew",
    "RepetitionsProlong": "a_look_and_a_repetition_don_t",
    "OldPartsAreRemembered": "a_new_one_knows_nothing_of_the_old",
    "CountsAreOfAnyLife": "a_count_of_a_life_that_is_over_counts_nothing",
    "TheNextIsDeletedToo": "to_delete_a_life_that_is_over_deletes_nothing",
    "AllHaveDeletedIt": "of_those_that_delete_it_at_once_one_has_done_it",
    "NobodyIsTold": "those_that_watch_are_told_when_it_opens",
    "OneIsTold": "those_that_watch_are_told_when_it_opens",
    "TheDeletedLive": "one_that_is_deleted_is_gone",
    "NobodyIsToldOfItsEnd": "those_that_watch_are_told_of_its_end",
    "WatchesAreSetOnce": "a_watch_is_set_anew_for_a_new_one",
}

#: A bug above the lock service, and the test of the kit that kills it.
IN_THE_CALLER = {
    "nobody_is_woken_after_a_reconnect": "who_waits_is_woken_after_a_reconnect",
    "hints_are_not_heard": "who_waits_is_woken_by_the_last_count",
    "each_attempt_is_another_part": "a_count_whose_reply_was_lost_counts_once",
    "a_repetition_counts_any_life": "a_task_s_count_whose_reply_was_lost_stays_out_of_the_next_round",
    "a_repetition_deletes_any_life": "to_delete_one_whose_reply_was_lost_spares_the_next_round",
    "all_lives_are_one": "one_that_is_made_twice_has_two_lives",
    "each_attempt_is_another_maker": "who_made_it_is_told_although_the_reply_was_lost",
    "the_gone_are_open": "who_waits_for_one_that_ends_is_told",
    "the_next_one_is_the_same": "who_waits_for_one_does_not_pass_with_the_next_of_its_name",
    "to_delete_is_tried_once": "to_delete_one_may_be_repeated",
    "another_count_is_nobodys_business": "another_count_is_an_error",
    "the_first_trouble_ends_each_wait": "who_waits_outlasts_a_service_that_is_away_for_a_moment",
    "trouble_is_a_time_out": "where_nobody_can_tell_a_wait_is_no_mere_time_out",
    "each_waiter_looks_for_itself": "many_waiters_cost_one_thread_and_few_looks",
    "the_interrupted_stay": "a_cancelled_task_leaves_nothing_behind",
    "a_close_leaves_those_that_wait": "a_closed_client_waits_for_nothing_and_leaves_no_thread",
    "the_thread_never_ends": "nobody_waits_and_no_thread_is_left",
}

#: Tests that need no time on a latch that is not broken.
AT_ONCE = ("it_is_made_once", "it_goes_down_to_0_and_not_below", "another_count_is_an_error")

SUITE = """
from __future__ import annotations

import secrets

import pytest

from distlock.testing import conformance, protocol_fixtures, fixtures, waits
from distlock.testing.conformance import latches, protocol_latches
from tests.testing import planted_in_latches

@pytest.fixture
def url():
    return "memory://planted"

@pytest.fixture(autouse=True)
def plant(monkeypatch):
    # Broken latches make callers wait: not for long.
    for module in (fixtures, latches, protocol_latches, waits):
        monkeypatch.setattr(module, "PATIENCE", 2.0)
    monkeypatch.setattr(protocol_fixtures.RecordingSink.wait_for_notification, "__defaults__", (1.0,))
    for bug in {bugs}:
        getattr(planted_in_latches, bug)(monkeypatch)

class TestProtocol(conformance.LatchProtocolConformance):
    @pytest.fixture
    def options(self):
        return {options}

class TestLatches(conformance.LatchConformance):
    pass
"""


def run(pytester: pytest.Pytester, *tests: str, backend: str = "", bug: str = "") -> dict[str, int]:
    options = {"backend": f"{planted_in_latches.__name__}.{backend}"} if backend else {}
    suite = SUITE.replace("{options}", repr(options)).replace("{bugs}", repr([bug] if bug else []))
    pytester.makepyfile(suite)
    return pytester.runpytest_inprocess(
        "-q", "-k", " or ".join(f"test_{test}" for test in tests), *WITHOUT
    ).parseoutcomes()


@pytest.mark.parametrize(("bug", "test"), IN_THE_SERVICE.items())
def test_a_bug_in_the_service_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=bug).get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_THE_CALLER.items())
def test_a_bug_in_the_caller_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, bug=bug).get("failed") == 1


def test_an_honest_latch_passes_in_the_same_place(pytester: pytest.Pytester) -> None:
    """To be planted is no reason to fail. All of the kit is passed in tests/backends/test_memory.py."""
    outcomes = run(pytester, *AT_ONCE, backend="Honest")
    assert outcomes.pop("passed") == len(AT_ONCE)
    assert outcomes.keys() <= {"deselected"}
