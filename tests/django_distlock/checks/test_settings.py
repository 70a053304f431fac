"""System checks of ``DISTLOCK``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

Serve = Callable[..., Client]


@distributed_lock("product_<id>")
def buy(request: HttpRequest, id: int) -> HttpResponse: ...


def found() -> list[str]:
    return sorted(message.id for message in run_checks() if message.id.startswith("distlock."))


def hints() -> str:
    return " ".join(f"{m.msg} {m.hint}" for m in run_checks() if m.id.startswith("distlock."))


def test_a_site_that_is_set_up_well_passes(serve: Serve, settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "redis://127.0.0.1:1"}}
    serve(buy)
    assert found() == []


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({}, ["distlock.I001"]),
        ({"MAX_WAITERS": 4}, ["distlock.I001"]),
        ({"MAX_WAITERS_TOTAL": 8}, []),
        ({"MAX_WAITERS_TOTAL": None}, []),
        ({"BACKEND": "dummy"}, []),
        ({"TTL": 0}, []),  # What is wrong comes first.
    ],
)
def test_before_deployment_it_says_what_no_cap_costs(
    given: dict[str, object], ids: list[str], settings: Any
) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "redis://127.0.0.1:1", **given}}
    said = [
        message for message in run_checks(include_deployment_checks=True) if message.id == "distlock.I001"
    ]
    assert [message.id for message in said] == ids
    assert all("16 threads" in str(message.hint) for message in said)
    assert "distlock.I001" not in found()


@pytest.mark.parametrize(
    ("setting", "ids"),
    [
        (["redis://"], ["distlock.E001"]),
        ({"other": {}}, ["distlock.E001"]),
        ("localhost", ["distlock.E002"]),
        ({"default": {"BACKEND": "no.such.Backend", "LOCATION": "x://"}}, ["distlock.E002"]),
        ({"default": {"LOCATION": "memory://", "OPTIONS": {"x": 1}}}, ["distlock.E002", "distlock.W002"]),
        ({"default": {"LOCATION": "memory://", "TTLL": 3}}, ["distlock.E003"]),
        ({"default": {"LOCATION": "memory://", "TTL": 0, "TIMEOUT": "5"}}, ["distlock.E004"] * 2),
        ({"default": {"BACKEND": "dummy"}}, ["distlock.W002"]),
    ],
)
def test_what_is_wrong_with_the_settings_is_found(setting: object, ids: list[str], settings: Any) -> None:
    settings.DISTLOCK = setting
    assert found() == ids


@pytest.mark.parametrize("typo", ["DISTLOCK_RULE", "DISTLOCK_SERVER_TIMINGS", "DISTLOCKS", "DISLOCK"])
def test_a_setting_that_is_almost_ours_is_found(typo: str, settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "redis://127.0.0.1:1"}}
    settings.DISTLOCK_URL = "redis://127.0.0.1:1"  # The site's own.
    assert found() == []
    setattr(settings, typo, [])
    assert found() == ["distlock.E003"]
    assert f"The setting {typo} is not read. Did you mean DISTLOCK" in hints()


def test_a_wrong_status_is_found(settings: Any) -> None:
    settings.DISTLOCK_CONTENDED_STATUS = 200
    assert "distlock.E004" in found()


def test_a_switch_that_is_no_bool_is_found(settings: Any) -> None:
    settings.DISTLOCK_REFRESH_USER = "no"
    assert "distlock.E004" in found()
    assert "DISTLOCK_REFRESH_USER is 'no'. Write True or False." in hints()


def test_without_settings_production_is_an_error_and_debugging_a_warning(settings: Any) -> None:
    del settings.DISTLOCK
    assert found() == ["distlock.E001"]
    assert "redis://localhost" in hints()
    assert "file:///var/lib/shop/locks" in hints()
    settings.DEBUG = True
    assert found() == ["distlock.W001"]


def test_a_lock_directory_that_can_not_be_used_is_an_error(settings: Any, tmp_path: Path) -> None:
    directory = tmp_path / "locks"
    settings.DISTLOCK = {"default": {"LOCATION": f"file://{directory}"}}
    assert found() == []
    assert not directory.exists()
    directory.mkdir()
    directory.chmod(0o777)
    assert found() == ["distlock.E014"]
    with pytest.raises(ConfigurationError) as used:
        locks.lock("product_1").acquire()
    assert f"DISTLOCK['default']: {used.value}" in hints()
    assert "run it as the user who serves the site" in hints()
