"""``on_contended="skip"``: a task whose lock is taken is left out, and a view can't be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock import BackendUnavailable, ConfigurationError, LockTimeout
from distlock.testing import backend_down, contended
from django_distlock import distributed_lock


@distributed_lock("report_<int:day>", timeout=0, on_contended="skip")
def write_report(day: int) -> str:
    return f"written for {day}"


@distributed_lock("report_<int:day>", timeout=0, on_contended="skip")
async def awrite_report(day: int) -> str:
    return f"written for {day}"


@distributed_lock("product_<int:id>", on_contended="skip")
def buy(request: HttpRequest, id: int) -> HttpResponse: ...


def test_a_task_is_left_out_while_its_lock_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "distlock")
    with contended("report_1"):
        assert write_report(1) is None
        assert asyncio.run(awrite_report(1)) is None
        assert write_report(2) == "written for 2"
    assert write_report(1) == asyncio.run(awrite_report(1)) == "written for 1"
    skipped = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert len(skipped) == 2
    assert "test_skipping.write_report is skipped: The lock 'report_1'" in skipped[0]


def test_what_the_task_raises_itself_and_an_outage_are_no_reason_to_skip_it() -> None:
    @distributed_lock("report", timeout=0, on_contended="skip")
    def sell_inside() -> None:
        raise LockTimeout("of a lock inside")

    with pytest.raises(LockTimeout, match="of a lock inside"):
        sell_inside()
    with backend_down(), pytest.raises(BackendUnavailable):
        write_report(1)


def test_a_view_has_to_answer(
    serve: Callable[..., Client], rules: Callable[..., Client], settings: Any
) -> None:
    client = serve(buy)
    assert [message.id for message in run_checks() if "is for plain functions" in message.msg] == [
        "distlock.E011"
    ]
    with pytest.raises(ConfigurationError, match="a view has to answer"):
        client.post("/product/1")
    settings.DISTLOCK_RULES = [{"route": "buy", "lock": "product_<id>", "on_contended": "skip"}]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_distlock.middleware.DistlockMiddleware"]
    assert any('on_contended="skip"' in m.msg for m in run_checks() if m.id == "distlock.E009")
