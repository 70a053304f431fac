"""Scripts with a bug: what a slip in one line of them would do. The kit must find every one."""

from __future__ import annotations

import importlib.util
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

from distlock.backends.redis import scripts

#: Script, the line, what is written in its place, and the test of the kit that kills it.
BUGS = {
    "ReadersEnterWhereOthersWait": (
        "request_shared.lua",
        "if waiting == 0 and fits",
        "if fits",
        "a_reader_does_not_pass_a_writer_that_waits",
    ),
    "AReaderIsAWriter": (
        "read.lua",
        "open(token, ttl, '-', now, following)",
        "grant(token, 1, ttl, '-', now)",
        "readers_share_a_key",
    ),
    "AWriterIsLetInAmongReaders": (
        "shared_hold.lua",
        "return wish == '0'",
        "return true",
        "a_released_writer_hands_to_the_readers_up_to_the_next_writer",
    ),
    "TheFirstReaderOutEndsTheHold": (
        "release_any.lua",
        "if settle(now, permits) then",
        "if permits and settle(now, permits) then",
        "the_last_reader_out_hands_to_the_writer",
    ),
    "TheLastReaderOutTellsNobody": (
        "release_any.lua",
        "hand_off_or_leave(now, number, not permits and following or nil)",
        "local _ = now",
        "the_last_reader_out_hands_to_the_writer",
    ),
    "ARunIsNotTold": (
        "shared_hold.lua",
        "if enters or redis.call('PUBLISH', 'dl:2:ch:' .. waiter, '0 0 0 ' .. key) > 0 then",
        "if true then",
        "each_reader_that_is_next_is_given_a_hint",
    ),
    "NobodyIsEverFollowed": (
        "request_shared.lua",
        "return {token, HELD, number, waiting}",
        "return {token, HELD, number, 0}",
        "a_reader_is_told_whether_others_wait",
    ),
    "ACancelOfAWriterWakesNobody": (
        "cancel.lua",
        "  admit(now, permits)\n",
        "",
        "a_writer_who_cancels_lets_in_the_readers_behind_it",
    ),
    "AReaderCancelsWhatItHas": (
        "cancel.lua",
        "if keep(member(ARGV[6], token), now, permits) then",
        "if false then",
        "a_reader_who_cancels_too_late_is_told_and_keeps_the_hold",
    ),
    "ARenewalRevivesTheDead": (
        "shared_hold.lua",
        "if not ends or tonumber(ends) <= math.floor(now / 1000) then",
        "if not ends then",
        "each_readers_lease_ends_alone",
    ),
    "AnybodyRenews": (
        "renew.lua",
        "ours = keep(member(ARGV[6], token), now, permits)",
        "ours = true",
        "only_its_token_proves_a_readers_hold",
    ),
    "ALeaseIsForAll": (
        "shared_hold.lua",
        "redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', ms(now, 0))",
        "redis.call('DEL', HOLDERS)",
        "each_readers_lease_ends_alone",
    ),
    "TheHoldEndsWithTheShortestLease": (
        "shared_hold.lua",
        "redis.call('ZRANGE', HOLDERS, -1, -1, 'WITHSCORES')",
        "redis.call('ZRANGE', HOLDERS, 0, 0, 'WITHSCORES')",
        "each_readers_lease_ends_alone",
    ),
    "AHandOverIsWorthALease": (
        "shared_hold.lua",
        "enters and lifetime or window",
        "lifetime or 60000",
        "a_permit_that_was_handed_off_and_not_taken_is_worth_a_window_not_a_lease",
    ),
    "ADowngradeKeepsItsNumber": (
        "downgrade.lua",
        "digits(tonumber(following) - 1)",
        "string.match(redis.call('GET', KEYS[1]), '^%d+')",
        "the_number_of_a_downgraded_hold_is_that_of_a_reader",
    ),
    "ADowngradeLetsNobodyIn": (
        "downgrade.lua",
        "  admit(now)\n",
        "",
        "a_downgrade_lets_in_the_readers_that_are_next",
    ),
    "ADowngradeCantBeRepeated": (
        "downgrade.lua",
        "if owner == READERS and keep(one, now) then",
        "if false then",
        "a_second_downgrade_changes_nothing",
    ),
    "AnybodyDowngrades": (
        "downgrade.lua",
        "if owner ~= token then",
        "if not owner then",
        "only_the_holder_downgrades",
    ),
    "ADowngradeIsARelease": (
        "downgrade.lua",
        "redis.call('ZADD', HOLDERS, ms(now, ttl), one)",
        "redis.call('DEL', KEYS[1])",
        "a_downgrade_lets_no_writer_in",
    ),
    "PermitsAreNotCounted": (
        "request_shared.lua",
        "out = out + permits_of(one)",
        "out = out + 1",
        "several_permits_are_had_at_once",
    ),
    "OnePermitOfSeveralComesBack": (
        "release_any.lua",
        "out = out - permits_of(one)",
        "out = out - 1",
        "several_freed_permits_let_in_as_many_as_fit",
    ),
    "PermitsNeverLapse": (
        "permit.lua",
        "look(now, tonumber(following))",
        "out = tonumber(following)",
        "a_permit_comes_back_after_its_lease_and_only_once",
    ),
    "SmallAsksPassLargeOnes": (
        "request_shared.lua",
        "if waiting == 0 and fits",
        "if fits",
        "a_small_ask_does_not_pass_a_large_one",
    ),
    "ASecondReleaseGivesAPermit": (
        "release_any.lua",
        "redis.call('ZREM', HOLDERS, one) == 0",
        "redis.call('ZREM', HOLDERS, one) == 2",
        "a_second_release_frees_no_second_permit",
    ),
    "AskingAgainTakesAPermit": (
        "request_shared.lua",
        "local ours = keep(one, now, permits)",
        "local ours = false",
        "asking_again_takes_no_second_permit",
    ),
    "ABreakLeavesReadersInside": (
        "break.lua",
        "if (its or number) == ARGV[9] then",
        "if its == ARGV[9] then",
        "readers_are_shown_and_broken_as_other_holders",
    ),
    "ABreakFreesNoPermit": (
        "break.lua",
        "redis.call('ZREM', HOLDERS, broken[1])",
        "local _ = broken",
        "holders_of_permits_are_shown_and_broken_as_others",
    ),
}

#: Bugs that the kit can't find: its server keeps its data and its clock, and no process dies there. The
#: controls of the tests that play such faults plant these bugs.
CARELESS = {
    "NumbersIgnoreTheClock": (
        "hold.lua",
        "math.max(tonumber(following) or 0, now, least or 0)",
        "math.max(tonumber(following) or 0, least or 0)",
        "",
    ),
    "NumbersAreTheClock": (
        "hold.lua",
        "math.max(tonumber(following) or 0, now, least or 0)",
        "now",
        "",
    ),
    "AHandOffNeedsNoAnswer": (
        "hand_off.lua",
        "local lease = enters and lifetime or window",
        "local lease = 60000",
        "",
    ),
    "ARenewalWritesTheHold": (
        "hold.lua",
        "redis.call('PEXPIRE', KEYS[1], digits(ttl))\n",
        "redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]), 'PX', digits(ttl))\n",
        "",
    ),
    "TheDeadAreHandedTheLock": (
        "hand_off.lua",
        "redis.call('PUBLISH', 'dl:2:ch:' .. waiter, push) > 0",
        "redis.call('PUBLISH', 'dl:2:ch:' .. waiter, push) >= 0",
        "",
    ),
}


class _Folder:
    """That of the scripts, where one of them has *bug*."""

    def __init__(self, scripts: Traversable, bug: tuple[str, str, str, str]) -> None:
        self._scripts = scripts
        self._file, self._line, self._planted, _ = bug
        self._name = ""

    def __truediv__(self, name: str) -> _Folder:
        self._name = name
        return self

    def read_text(self, encoding: str) -> str:
        text = (self._scripts / self._name).read_text(encoding)
        if self._name != self._file:
            return text
        assert text.count(self._line) == 1, f"{self._line!r} stands {text.count(self._line)} times there"
        return text.replace(self._line, self._planted)


def plant(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """Have the backend use scripts with *bug*."""
    folder = _Folder(resources.files("distlock.backends.redis") / "lua", (BUGS | CARELESS)[bug])
    spec = importlib.util.find_spec(scripts.__name__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "files", lambda package: folder)
        spec.loader.exec_module(anew)
    for name in ("REQUEST", "RELEASE", "DOWNGRADE", "CANCEL", "RENEW", "BREAK"):
        monkeypatch.setattr(scripts, name, getattr(anew, name))
