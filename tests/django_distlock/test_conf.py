from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks
from django_distlock.conf import warn_without_checks


def test_override_settings_reaches_the_locks() -> None:
    before = locks["default"]
    with override_settings(DISTLOCK={"default": {"BACKEND": "memory", "PREFIX": "other"}}):
        assert locks["default"].prefix == "other"
    assert locks["default"].prefix == before.prefix


def test_the_dummy_backend_switches_locking_off() -> None:
    with override_settings(DISTLOCK="dummy://"), locks.lock("product_1"), locks.lock("product_1"):
        assert not locks.lock("product_1").locked()


def test_wrong_settings_are_told_at_first_use_for_servers_run_no_checks() -> None:
    with (
        override_settings(DISTLOCK={"default": {"LOCATION": "memory://", "TTL": 0}}),
        pytest.raises(ConfigurationError, match=r"DISTLOCK\['default'\]\['TTL'\] is 0"),
    ):
        locks.lock("product_1")


def test_without_settings_production_is_refused(settings: Any) -> None:
    del settings.DISTLOCK
    with pytest.raises(ConfigurationError, match="DISTLOCK is not configured"):
        locks.lock("product_1")


def test_without_settings_files_serve_this_host_while_debugging(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    del settings.DISTLOCK
    settings.DEBUG = True
    with locks.lock("product_1"):
        assert locks.lock("product_1").locked()
    assert (tmp_path / "distlock").is_dir()


@pytest.mark.parametrize(("installed", "lines"), [(True, 0), (False, 1)])
def test_a_site_that_runs_no_checks_is_told_once(
    installed: bool, lines: int, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if not installed:
        settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_distlock"]
    warn_without_checks.cache_clear()
    sell = distributed_lock("product_<id>")(lambda id: None)
    sell(1)
    sell(2)
    assert caplog.text.count('INSTALLED_APPS += ["django_distlock"]') == lines
