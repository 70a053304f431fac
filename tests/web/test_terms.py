"""What the calls of one guard have in common is looked up once, until the settings change."""

from __future__ import annotations

from typing import Any

import pytest

from distlock.errors import ConfigurationError
from distlock.terms import Terms
from distlock.web.guard_marks import Guarded
from distlock.web.guard_options import GuardOptions
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import Clients


def sell(product_id: int) -> None: ...


def guarded(*names: str, **words: Any) -> Guarded:
    return Guarded(sell, GuardOptions(names, **words))


def test_they_are_made_once_and_anew_after_a_reset() -> None:
    read_from = [{"default": {"LOCATION": f"memory://terms{size}", "MAX_NAMES": size}} for size in (3, 4)]
    site, guard = Clients(lambda: read(read_from.pop(0))), guarded("product_<int:product_id>")
    before = site.terms(guard)
    assert before.client is site["default"]
    assert (before.max_names, before.fenced_in, before.standby) == (3, None, None)
    assert site.terms(guard) is before
    site.reset()
    after = site.terms(guard)
    assert (after.client, after.max_names) == (site["default"], 4)
    assert after.client is not before.client


def test_each_decorator_has_its_own() -> None:
    setting = {"default": {"LOCATION": "memory://terms", "FENCE": "orders", "ON_BACKEND_DOWN": "run"}}
    site = Clients(lambda: read(setting))
    as_set, unfenced = site.terms(guarded("a")), site.terms(guarded("a", fence=False))
    assert (as_set.fenced_in, unfenced.fenced_in) == ("orders", None)
    assert as_set.standby is site.standby("default") is not None


def test_its_locks_have_what_it_was_told_and_else_what_the_alias_has() -> None:
    setting = {"default": {"LOCATION": "memory://terms", "TTL": 7, "MAX_HOLD": 70}}
    site = Clients(lambda: read(setting))
    where = f"{__name__}.sell"
    assert site.terms(guarded("a")).lock == Terms(7, 70, where)
    assert site.terms(guarded("a", ttl=3, max_hold=300)).lock == Terms(3, 300, where)


def test_a_guard_begins_on_a_push_where_its_transaction_is_fenced() -> None:
    setting = {"default": {"LOCATION": "memory://terms", "FENCE": "orders"}}
    site = Clients(lambda: read(setting))
    assert site.terms(guarded("a")).lock.on_push
    assert not site.terms(guarded("a", fence=False)).lock.on_push


@pytest.mark.parametrize("word", ["ttl", "max_hold"])
def test_what_is_wrong_is_said_each_time(word: str) -> None:
    site, guard = Clients(lambda: read({"default": {"BACKEND": "database"}})), guarded("a", **{word: 3})
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=f"Leave {word}= out"):
            site.terms(guard)


def test_a_decorator_that_is_gone_is_forgotten() -> None:
    site = Clients(lambda: read({"default": {"LOCATION": "memory://terms"}}))
    guard = guarded("a")
    site.terms(guard)
    assert len(site._terms) == 1
    # It is in no cycle: its last reference is its end, and what other tests have left is not collected here.
    del guard
    assert len(site._terms) == 0
