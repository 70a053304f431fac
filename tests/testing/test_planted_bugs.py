"""The kit is tested: every planted bug is found by the test that is named beside it."""

from __future__ import annotations

from types import ModuleType

import pytest

# Each suite below would have them anew otherwise.
import distlock.testing.conformance  # noqa: F401
from tests.testing import (
    planted_in_engine,
    planted_in_service,
    planted_in_shared,
)

pytest_plugins = ["pytester"]

#: A bug in the backend, and the test of the kit's protocol that kills it.
IN_THE_SERVICE = {
    "EverybodyHolds": "a_held_key_is_not_held_by_another",
    "AnybodyReleases": "only_the_token_proves_the_hold",
    "AnybodyRenews": "only_the_token_proves_the_hold",
    "ReleaseTwicePopsTwice": "a_second_release_frees_nobody_elses_hold",
    "NewcomersBarge": "a_newcomer_does_not_pass_who_waits",
    "LastComeFirstServed": "a_released_key_goes_to_who_asked_first",
    "NobodyIsHinted": "who_is_next_is_given_a_hint",
    "EveryPollQueues": "asking_again_while_queued_takes_no_second_place",
    "TryingQueues": "who_does_not_want_to_wait_is_told_busy_and_leaves_no_trace",
    "NoCancel": "who_cancels_is_out_of_the_queue",
    "CancelGivesUpTheHold": "who_cancels_too_late_is_told_and_keeps_the_hold",
    "EqualFences": "later_holds_have_larger_numbers",
    "FencesForgetTheBlock": "a_hold_reserves_a_whole_block_of_numbers",
    "EveryPollHasANewFence": "asking_again_while_holding_gives_the_same_hold",
    "NoExpiry": "a_hold_that_nobody_renews_ends",
    "RenewalDoesNothing": "a_renewed_hold_does_not_end",
    "HandOverIsWorthALease": "a_hand_over_that_nobody_takes_is_worth_a_window_not_a_lease",
    "FloorsAreForgotten": "a_raised_floor_lifts_the_hold_and_all_later_ones",
    "AnybodyRaisesFloors": "only_the_holder_raises_a_floor",
    "EveryRaiseIsANewFence": "raising_a_floor_again_changes_nothing",
    "AnybodyAcknowledges": "only_the_holder_acknowledges",
    "AcknowledgementsGrant": "an_acknowledgement_never_grants",
    "AcknowledgementsForgetTheNumber": "an_acknowledgement_is_for_one_number",
    "AcknowledgementDoesNothing": "what_is_acknowledged_outlives_its_window",
    "PushesNameAnotherHold": "a_push_names_the_hold",
    "NamesFold": "different_names_are_different_locks",
    "DeclaresTooLittle": "what_it_can_do_is_declared_and_tested",
    "CloseKeepsADescriptor": "a_close_leaves_nothing_open",
    "CloseKeepsAHandOver": "a_close_leaves_nothing_open",
    "CloseKeepsTheQueue": "a_closed_backend_waits_no_more",
    "ClosedForEver": "a_closed_backend_begins_anew_with_the_next_call",
    "ClosingTwiceFails": "closing_again_does_nothing",
    "ClosingConnects": "an_unused_backend_closes",
}

#: A bug in what readers may hold, and the test of the kit that kills it.
IN_READERS = {
    "ReadersTakeTurns": "readers_share_a_key",
    "ReadersDisregardWriters": "a_writer_keeps_readers_out",
    "WritersDisregardReaders": "a_reader_keeps_writers_out",
    "ReadersPassWaitingWriters": "a_reader_does_not_pass_a_writer_that_waits",
    "AllWaitingReadersEnter": "a_released_writer_hands_to_the_readers_up_to_the_next_writer",
    "OnlyTheFirstOfARunEnters": "a_released_writer_hands_to_the_readers_up_to_the_next_writer",
    "ALongRunIsCutOff": "a_long_run_of_readers_enters_wholly",
    "TheFirstReaderOutFreesTheKey": "the_last_reader_out_hands_to_the_writer",
    "TheLastReaderOutTellsNobody": "the_last_reader_out_hands_to_the_writer",
    "OneOfARunIsHinted": "each_reader_that_is_next_is_given_a_hint",
    "NobodyIsEverFollowed": "a_reader_is_told_whether_others_wait",
    "OnceFollowedAlwaysFollowed": "a_reader_is_told_whether_others_wait",
    "ACancelWakesNobody": "a_writer_who_cancels_lets_in_the_readers_behind_it",
    "AHungReaderTakesTheOthersAlong": "each_readers_lease_ends_alone",
    "ARenewalIsForAllReaders": "a_renewal_is_for_one_reader",
    "ReadersHaveNoLease": "a_writer_enters_when_the_last_readers_lease_ends",
    "AHandedReaderHasALease": "a_hand_over_that_a_reader_does_not_take_is_worth_a_window_not_a_lease",
    "ReadersHaveTheNumberOfTheBlock": "a_readers_number_lies_between_those_of_the_writers",
    "WritersShareTheNumberOfReaders": "a_readers_number_lies_between_those_of_the_writers",
}

#: A bug in how a write is turned into a read, and the test of the kit that kills it.
IN_DOWNGRADES = {
    "ADowngradeIsAReleaseAndARead": "a_downgrade_lets_no_writer_in",
    "ADowngradeLetsNobodyIn": "a_downgrade_lets_in_the_readers_that_are_next",
    "ADowngradeDoesNothing": "who_comes_after_a_downgrade_reads_beside",
    "ADowngradeCantBeRepeated": "a_second_downgrade_changes_nothing",
    "AnybodyDowngrades": "only_the_holder_downgrades",
    "ADowngradeKeepsItsNumber": "the_number_of_a_downgraded_hold_is_that_of_a_reader",
}

#: A bug in what permits are given, and the test of the kit that kills it.
IN_PERMITS = {
    "HoldsAreCounted": "several_permits_are_had_at_once",
    "NobodyHearsOfOtherLimits": "who_is_granted_some_hears_of_another_limit",
    "TheFirstLimitIsForAll": "each_goes_by_its_own_limit",
    "SmallAsksPassLargeOnes": "a_small_ask_does_not_pass_a_large_one",
    "AFreedPermitWakesEverybody": "a_freed_permit_goes_to_who_asked_first_and_tells_nobody_else",
    "OneEntersForSeveralPermits": "several_freed_permits_let_in_as_many_as_fit",
    "EveryPollTakesAPermit": "asking_again_takes_no_second_permit",
    "APermitComesBackTwiceAfterItsLease": "a_permit_comes_back_after_its_lease_and_only_once",
    "ASecondReleaseGivesAPermit": "a_second_release_frees_no_second_permit",
    "PermitsNeverComeBack": "a_permit_comes_back_after_its_lease_and_only_once",
    "OnePermitOfSeveralComesBack": "all_permits_of_a_lapsed_hold_come_back",
    "PermitsHaveOneLease": "each_permits_lease_ends_alone",
    "AHandedPermitHasALease": "a_permit_that_was_handed_off_and_not_taken_is_worth_a_window_not_a_lease",
}

#: A bug in how a holder is asked for its lock, and the test of the kit that kills it.
IN_REVOCATION = {
    "RequestsAreForgotten": "the_holder_hears_that_its_hold_is_wanted_back",
    "SomebodyIsAlwaysAsked": "nobody_is_asked_where_nobody_holds",
    "RequestsAreForTheName": "who_waits_hears_nothing_and_no_later_holder_finds_it",
    "RequestsTakeTheLock": "a_request_takes_nothing",
    "ThoseThatWaitAreAsked": "who_waits_hears_nothing_and_no_later_holder_finds_it",
    "OneReaderIsAsked": "all_readers_are_asked_and_no_writer_that_waits",
}

#: A bug above the backend, and the test of the kit that kills it.
IN_THE_ENGINE = {
    "nothing_is_cancelled": "a_lock_whose_reply_was_lost_is_not_held_by_a_ghost",
    "nothing_is_renewed": "a_busy_holder_keeps_the_lock_longer_than_its_ttl",
    "hung_holders_are_renewed_for_ever": "a_hung_holder_does_not_keep_the_lock",
    "who_gives_up_does_not_cancel": "who_timed_out_leaves_nothing_behind",
    "the_interrupted_leave_everything": "a_cancelled_waiter_leaves_nothing_behind",
    "queues_stay": "many_names_leave_nothing_behind",
    "the_last_waiter_is_next": "waiters_of_one_process_are_served_in_order",
    "turns_have_no_end": "clients_are_served_in_turns",
    "hand_offs_share_a_fence": "one_caller_is_inside_at_a_time",
    "waits_have_no_end": "a_wait_ends_on_time",
    "nobody_is_turned_away": "too_many_waiters_are_turned_away_at_once",
    "a_loss_is_not_told": "a_holder_is_told_that_its_lock_was_lost",
    "joins_have_no_end": "a_writer_gets_in_among_readers_that_never_cease",
    "a_read_waits_behind_its_own": "who_reads_reads_again_past_a_writer_that_waits",
    "an_upgrade_waits_for_itself": "who_reads_is_refused_at_once_when_it_would_write",
    "a_hung_reader_takes_the_others_along": "a_reader_that_hangs_is_lost_alone",
    "a_writer_gives_up_what_it_reads": "a_read_outlives_the_write_that_it_began_in",
    "every_permit_is_one": "several_permits_are_taken_at_once_or_none",
    "a_timed_out_with_enters": "a_timed_out_with_does_not_enter",
    "a_context_owns_the_reentrant_lock": "a_sibling_task_is_another_owner",
    "carts_lock_in_their_own_order": "carts_in_opposite_order_do_not_deadlock",
    "some_of_the_names_are_kept": "several_names_are_all_held_or_none",
    "what_is_wanted_back_is_passed_on": "the_next_in_line_of_the_same_process_is_not_asked",
    "callbacks_run_where_a_request_is_heard": "a_callback_in_trouble_harms_no_lock",
}

#: Tests of each kind that need no time on a lock that is not broken.
AT_ONCE = (
    "a_held_key_is_not_held_by_another",
    "only_the_token_proves_the_hold",
    "later_holds_have_larger_numbers",
    "readers_share_a_key",
    "a_downgrade_lets_no_writer_in",
    "several_permits_are_had_at_once",
    "a_request_takes_nothing",
    "who_reads_is_refused_at_once_when_it_would_write",
)

SUITE = """
from __future__ import annotations

import pytest

from distlock.testing import conformance, protocol_fixtures, fixtures, waits
from distlock.testing.conformance import locks, release_requests, shared_locks, troubles
from tests.testing import planted_in_engine

@pytest.fixture
def url():
    return "memory://planted"

class Options:
    @pytest.fixture
    def options(self):
        return {options}

def at_most(seconds, wait):
    return lambda self, key, patience=seconds: wait(self, key, min(patience, seconds))

@pytest.fixture(autouse=True)
def plant(monkeypatch):
    # Broken locks make callers wait: not for long.
    for module in (fixtures, waits, locks, release_requests, shared_locks, troubles):
        monkeypatch.setattr(module, "PATIENCE", 2.0)
    monkeypatch.setattr(release_requests, "TTL", 1.0)
    sink = protocol_fixtures.RecordingSink
    for owner, wait in ((protocol_fixtures.Contender, "until_held"), (sink, "wait_for_notification")):
        monkeypatch.setattr(owner, wait, at_most(1.0, getattr(owner, wait)))
    for bug in {bugs}:
        getattr(planted_in_engine, bug)(monkeypatch)

class TestService(
    Options,
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.LeaseConformance,
    conformance.HandingConformance,
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
    conformance.NotifyConformance,
):
    pass

class TestClose(Options, conformance.CloseConformance):
    pass

class TestFloor(Options, conformance.FloorConformance):
    pass

class TestThreads(Options, conformance.ThreadConformance):
    pass

class TestRevocation(Options, conformance.RevocationConformance):
    pass

class TestSharing(Options, conformance.SharingConformance):
    pass

class TestSemaphores(Options, conformance.SemaphoreConformance):
    pass

class TestCarts(Options, conformance.CartConformance):
    pass

class TestTroubles(Options, conformance.TroubleConformance):
    names = 100

# Only what has the tests is collected: to collect all of the kit takes longer than most of them.
for name in [name for name in globals() if name.startswith("Test")]:
    if not any(hasattr(globals()[name], test) for test in {tests}):
        del globals()[name]
"""

#: A suite that is over in a moment does not need them, and would have them loaded each time.
WITHOUT = ("-p", "no:django", "-p", "no:hypothesispytest", "-p", "no:cacheprovider", "--tb", "line")


def run(pytester: pytest.Pytester, *tests: str, backend: str = "", bug: str = "") -> dict[str, int]:
    names = [f"test_{test}" for test in tests]
    options = {"backend": f"tests.testing.{backend}"} if backend else {}
    suite = SUITE.replace("{options}", repr(options)).replace("{bugs}", repr([bug] if bug else []))
    pytester.makepyfile(suite.replace("{tests}", repr(names)))
    return pytester.runpytest_inprocess("-q", "-k", " or ".join(names), *WITHOUT).parseoutcomes()


@pytest.mark.parametrize(("bug", "test"), IN_THE_SERVICE.items())
def test_a_bug_in_the_service_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=f"planted_in_service.{bug}").get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_READERS.items())
def test_a_bug_in_readers_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=f"planted_in_shared.{bug}").get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_DOWNGRADES.items())
def test_a_bug_in_downgrades_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=f"planted_in_shared.{bug}").get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_PERMITS.items())
def test_a_bug_in_permits_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=f"planted_in_shared.{bug}").get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_REVOCATION.items())
def test_a_bug_in_how_a_holder_is_asked_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, backend=f"planted_in_service.{bug}").get("failed") == 1


@pytest.mark.parametrize(("bug", "test"), IN_THE_ENGINE.items())
def test_a_bug_in_the_engine_is_found(pytester: pytest.Pytester, bug: str, test: str) -> None:
    assert run(pytester, test, bug=bug).get("failed") == 1


def test_an_honest_service_passes_in_the_same_place(pytester: pytest.Pytester) -> None:
    """To be planted is no reason to fail. All of the kit is passed in tests/backends/test_memory.py."""
    outcomes = run(pytester, *AT_ONCE, backend="planted.Honest")
    assert outcomes.pop("passed") == len(AT_ONCE)
    assert outcomes.keys() <= {"deselected"}


@pytest.mark.parametrize(
    ("module", "tested"),
    [
        (planted_in_service, IN_THE_SERVICE | IN_REVOCATION),
        (planted_in_shared, IN_READERS | IN_PERMITS | IN_DOWNGRADES),
        (planted_in_engine, IN_THE_ENGINE),
    ],
    ids=["service", "shared", "engine"],
)
def test_every_planted_bug_has_its_test(module: ModuleType, tested: dict[str, str]) -> None:
    planted = {
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
    }
    assert planted == tested.keys()
