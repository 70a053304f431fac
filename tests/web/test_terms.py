"""What the calls under one decorator have in common is looked up once, until the settings change."""

from __future__ import annotations

import gc

import pytest

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import Clients


def test_they_are_made_once_and_anew_after_a_reset() -> None:
    read_from = [{"default": {"LOCATION": f"memory://terms{size}", "MAX_NAMES": size}} for size in (3, 4)]
    site, told = Clients(lambda: read(read_from.pop(0))), Told(["product_<int:id>"])
    before = site.terms(told)
    assert before.client is site["default"]
    assert (before.max_names, before.fenced_in, before.standby) == (3, None, None)
    assert site.terms(told) is before
    site.reset()
    after = site.terms(told)
    assert (after.client, after.max_names) == (site["default"], 4)
    assert after.client is not before.client


def test_each_decorator_has_its_own() -> None:
    setting = {"default": {"LOCATION": "memory://terms", "FENCE": "orders", "ON_BACKEND_DOWN": "run"}}
    site = Clients(lambda: read(setting))
    as_set, unfenced = site.terms(Told(["a"])), site.terms(Told(["a"], fence=False))
    assert (as_set.fenced_in, unfenced.fenced_in) == ("orders", None)
    assert as_set.standby is site.standby("default") is not None


def test_what_is_wrong_is_said_each_time() -> None:
    site, told = Clients(lambda: read({"default": {"BACKEND": "database"}})), Told(["a"], ttl=3)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="Leave ttl= out"):
            site.terms(told)


def test_a_decorator_that_is_gone_is_forgotten() -> None:
    site = Clients(lambda: read({"default": {"LOCATION": "memory://terms"}}))
    for _ in range(100):
        site.terms(Told(["a"]))
    gc.collect()
    assert len(site._terms) == 0
