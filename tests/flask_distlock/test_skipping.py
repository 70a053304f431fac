"""``on_contended="skip"``: a task whose lock is taken is left out, and a view can't be."""

from __future__ import annotations

import asyncio

import pytest
from flask import Flask

from distlock import ConfigurationError, LockTimeout
from distlock.testing import contended
from flask_distlock import DistLock, distributed_lock


@distributed_lock("report_<int:day>", timeout=0, on_contended="skip")
def write_report(day: int) -> str:
    return f"written for {day}"


@distributed_lock("report_<int:day>", timeout=0, on_contended="skip")
async def awrite_report(day: int) -> str:
    return f"written for {day}"


def test_a_task_is_left_out_while_its_lock_is_taken(app: Flask) -> None:
    with app.app_context():
        with contended("report_1"):
            assert write_report(1) is None
            assert asyncio.run(awrite_report(1)) is None
            assert write_report(2) == "written for 2"
        assert write_report(1) == asyncio.run(awrite_report(1)) == "written for 1"


def test_what_the_task_raises_itself_is_no_reason_to_skip_it(app: Flask) -> None:
    @distributed_lock("report", timeout=0, on_contended="skip")
    def sell_inside() -> None:
        raise LockTimeout("of a lock inside")

    with app.app_context(), pytest.raises(LockTimeout, match="of a lock inside"):
        sell_inside()


def test_a_view_has_to_answer(app: Flask, locks: DistLock) -> None:
    app.post("/product/<int:id>")(distributed_lock("product_<id>", on_contended="skip")(lambda id: "sold"))
    with pytest.raises(ConfigurationError, match="a view has to answer"):
        locks.check(app)
    with pytest.raises(ConfigurationError, match="a view has to answer"):
        app.test_client().post("/product/1")
