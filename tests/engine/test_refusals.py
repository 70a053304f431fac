"""A rush of refusals is logged as counts: few lines, and nothing lost."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import distlock
from distlock.engine.admission import NAMES, PERIOD, Refusals, log_refusals
from distlock.engine.critical_section import CriticalSection
from distlock.engine.drivers import run
from distlock.engine.maintenance import MaintenanceThread
from distlock.testing.fixtures import engine_of
from tests.engine.scene import Scene
from tests.redis_server import eventually
from tests.web.quickstart import DOCS, code_blocks


def refusal(name: str) -> distlock.TooManyWaiters:
    return distlock.TooManyWaiters(f"No room for {name!r}.", name=name)


def test_one_count_for_each_name_and_second() -> None:
    now = [0.0]
    refusals = counting(now)
    for number in range(3000):
        now[0] = number / 3000
        refusals.count(refusal(f"product_{number % 2}"))
    assert refusals.due(0.0) == PERIOD
    assert refusals.take() == [(1500, "No room for 'product_0'."), (1500, "No room for 'product_1'.")]
    assert refusals.take() == []


def counting(now: list[float]) -> Refusals:
    """Refusals at *now*, which nobody logs."""
    section = CriticalSection()
    thread = MaintenanceThread(section, lambda: now[0], begun=lambda: None, threads=False)
    return Refusals(section, lambda: now[0], thread)


def test_they_are_logged_when_their_second_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = counting(now)
    refusals.count(refusal("a"))
    for now[0], logged in ((PERIOD / 2, 0), (PERIOD, 1)):
        run(refusals.tick(lambda: 0.0))
        assert len(caplog.records) == logged


def test_names_that_clients_make_up_share_a_line() -> None:
    refusals = counting([0.0])
    for number in range(100 * NAMES):
        refusals.count(refusal(f"product_{number}"))
    taken = refusals.take()
    assert len(taken) == NAMES + 1
    assert sum(count for count, _ in taken) == 100 * NAMES


@contextmanager
def full(url: str) -> Iterator[distlock.Locks]:
    """A client whose lock ``product_1`` refuses everybody."""
    # No renewal that is due wakes the keeper meanwhile.
    locks = distlock.connect(url, max_waiters=1, timeout=60, ttl=3600)
    with ThreadPoolExecutor(1) as pool:
        with locks.lock("product_1"):
            waiting = pool.submit(locks.lock("product_1").acquire)
            eventually(lambda: engine_of(locks).queues.waiting == 1, "one caller waits")
            yield locks
        grant = waiting.result(60)
        assert grant is not None
        grant.release()
    locks.close()


def refuse(locks: distlock.Locks, times: int) -> None:
    for _ in range(times):
        with pytest.raises(distlock.TooManyWaiters):
            locks.lock("product_1").acquire()


def counts(caplog: pytest.LogCaptureFixture) -> list[int]:
    said = [re.match(r"(\d+) refused at once: .*'product_1'", record.message) for record in caplog.records]
    return [int(found[1]) for found in said if found]


def test_the_end_of_a_burst_is_told_while_nothing_else_happens(caplog: pytest.LogCaptureFixture) -> None:
    with full("memory://told") as locks, caplog.at_level(logging.WARNING, "distlock"):
        began = distlock.clock.now()
        refuse(locks, 500)
        eventually(lambda: sum(counts(caplog)) == 500, "every refusal is told")
        assert len(counts(caplog)) <= 1 + (distlock.clock.now() - began) / PERIOD


def test_a_client_that_is_closed_tells_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "distlock"):
        with full("memory://closed") as locks:
            refuse(locks, 7)
        assert sum(counts(caplog)) == 7


def test_the_log_has_the_line_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    (shown,) = code_blocks((DOCS / "explanation/admission.md").read_text("utf-8"), "text")
    scene = Scene()
    scene.slow(1.0)
    for _ in range(5):
        scene.come()
    with pytest.raises(distlock.TooManyWaiters) as refusal:
        scene.come()
    log_refusals([(231, str(refusal.value))])
    alike = re.compile(r"[\d.]+|'\w+'")
    assert alike.sub("N", caplog.messages[0]).startswith(alike.sub("N", shown).removesuffix(" …\n"))
