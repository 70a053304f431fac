"""Admission: which callers come in, which are refused at once, and how a rush of refusals is logged."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import distlock
from distlock.backends.base import READ
from distlock.engine.admission import (
    COMPARABLE,
    LOG_PERIOD,
    MOST_GAPS,
    NAMES,
    REMEMBERED,
    Admission,
    Pace,
    Refusals,
    log_refusals,
)
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.sans_io import run
from distlock.errors import TooManyWaiters
from distlock.testing.waits import engine_of
from tests.engine.scene import TIMEOUT, Rush, Scene
from tests.redis_server import eventually
from tests.web.quickstart import DOCS, code_blocks

# -- who comes in ----------------------------------------------------------------------------------


def test_the_first_burst_comes_in() -> None:
    scene = Scene()
    callers = [scene.come() for _ in range(50)]
    scene.serve(callers, 0.005)


def test_who_is_next_comes_in_however_long_it_takes() -> None:
    scene = Scene()
    scene.slow(30.0)
    holder = scene.come()
    scene.now += 100.0
    head = scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()
    holder.leave()
    head.go()
    assert head.grant is not None


def test_a_line_that_is_too_long_is_refused_and_a_shorter_one_is_not() -> None:
    scene = Scene()
    scene.slow(1.0)
    scene.come()
    for _ in range(4):
        scene.come()
    # This one would be served after five seconds, which is all that it has.
    with pytest.raises(TooManyWaiters) as refusal:
        scene.come()
    assert refusal.value.name == "a"
    assert refusal.value.expected_wait == pytest.approx(5.0, rel=0.2)
    assert "'a'" in str(refusal.value)
    assert "time-out" in str(refusal.value)


def test_a_refusal_says_which_share_of_the_time_is_too_long_and_counts_in_good_english() -> None:
    scene = Scene()
    scene.slow(30.0)
    scene.come()
    scene.now += 120.0
    scene.come()
    with pytest.raises(TooManyWaiters) as refusal:
        scene.come()
    words = str(refusal.value)
    assert re.search(
        r"about \d{3} seconds, behind 1 other of this process: "
        r"more than 0\.8 of what is left of the time-out, 5 seconds\.",
        words,
    )
    # Its holder may be stalled: it is not always the view that is slow.
    assert "look at what holds the lock" in words
    scene.come(timeout=math.inf)
    with pytest.raises(TooManyWaiters, match=r"behind 2 others of this process: .* the time-out, 1 second\."):
        scene.come(timeout=1.0)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(1, "1 caller of this process waits already"), (2, "2 callers of this process wait already")],
)
def test_a_cap_counts_in_good_english(limit: int, words: str) -> None:
    scene = Scene()
    queues = scene.all[0].engine.queues
    scene.come()
    queues.admission = Admission(None, max_waiters_total=limit)
    with pytest.raises(TooManyWaiters, match=words):
        queues.admission.admit(queues.by_key[":a"], limit, 5.0, 0.0)


def test_a_name_is_known_as_slow_although_its_line_was_empty_meanwhile() -> None:
    scene = Scene(processes=2)
    elsewhere, in_vain = scene.come(process=1), scene.come()
    scene.now += TIMEOUT
    in_vain.go()
    assert in_vain.done
    assert in_vain.grant is None
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()
    elsewhere.leave()


def test_it_is_not_when_it_was_free_since() -> None:
    scene = Scene(processes=2)
    elsewhere, in_vain = scene.come(process=1), scene.come()
    scene.now += TIMEOUT
    in_vain.go()
    elsewhere.leave()
    assert scene.come().grant is not None
    scene.come()
    scene.come()


def test_the_waits_of_readers_count_as_those_of_others() -> None:
    scene = Scene(processes=2)
    writer, reader = scene.come(process=1), scene.come(timeout=math.inf, mode=READ)
    scene.now += 30.0
    writer.leave()
    reader.go()
    reader.leave()
    scene.come(process=1)
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_patience_decides() -> None:
    scene = Scene()
    scene.slow(1.0)
    for _ in range(10):
        scene.come(timeout=20.0)
    with pytest.raises(TooManyWaiters):
        scene.come(timeout=5.0)
    scene.come(timeout=20.0)


def test_of_several_names_each_is_asked_for_with_what_is_left_of_the_time() -> None:
    """A line that refuses a caller that has waited for another name lets one in that comes straight to it."""
    scene = Scene()
    scene.slow(0.3, "b")
    holders = [scene.come("a"), scene.come("b")]
    scene.come("b", timeout=math.inf)
    both = scene.come("a", "b")
    scene.now += 2.5
    holders[0].leave()
    with pytest.raises(TooManyWaiters) as refusal:
        both.go()
    assert refusal.value.name == "b"
    assert not scene.come("b").done


def test_patience_without_limit_is_never_refused() -> None:
    scene = Scene()
    scene.slow(1000.0)
    callers = [scene.come(timeout=math.inf) for _ in range(100)]
    scene.now += 10_000.0
    callers.append(scene.come(timeout=math.inf))
    scene.serve(callers, 0.0)


def test_a_quiet_hour_is_no_wait() -> None:
    scene = Scene(processes=2)
    scene.slow(0.01)
    scene.now += 3600.0
    elsewhere = scene.come(process=1)
    callers = [scene.come() for _ in range(10)]
    elsewhere.leave()
    scene.serve(callers, 0.01)


def test_one_slow_holder_does_not_make_the_whole_line_slow() -> None:
    """What is behind it is served in half a second: a pause of a database refuses nobody."""
    scene = Scene()
    scene.slow(0.005, count=30)
    callers = [scene.come() for _ in range(30)]
    scene.now += 0.3
    callers.append(scene.come())
    scene.serve(callers, 0.005)


# -- what is counted -------------------------------------------------------------------------------


def test_the_time_since_the_last_grant_counts() -> None:
    """A holder hangs: nobody is stored behind it, though the line was fast so far."""
    scene = Scene()
    scene.slow(0.01)
    scene.come()
    scene.come()
    scene.now += 4.1
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_the_turns_of_other_processes_count() -> None:
    """Two processes, one second each: a room has its turn every two seconds."""
    scene = Scene(processes=2)
    lines = [[scene.come(timeout=math.inf, process=process) for _ in range(12)] for process in (0, 1)]
    scene.serve([caller for pair in zip(*lines, strict=True) for caller in pair], 1.0)
    scene.come(process=1)
    scene.come()
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_waits_that_timed_out_count() -> None:
    """Callers that come after them are a new line: it must not begin as hopefully as they did."""
    scene = Scene(processes=2)
    scene.come(process=1)
    waiters = [scene.come() for _ in range(8)]
    scene.now += TIMEOUT
    for waiter in waiters:
        waiter.go()
        assert waiter.done
        assert waiter.grant is None
    assert not scene.all[0].engine.queues.by_key
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_waits_that_timed_out_count_for_as_long_as_they_took() -> None:
    """By then the holder that hung has most likely gone, and a rush that comes would be served."""
    scene = Scene(processes=2)
    elsewhere = scene.come(process=1)
    scene.come()
    scene.now += TIMEOUT
    scene.present[-1].go()
    elsewhere.leave()
    scene.now += TIMEOUT + 0.1
    scene.serve([scene.come() for _ in range(16)], 0.005)


@pytest.mark.parametrize("time_outs", [1, 3, 12])
def test_a_stall_that_is_over_refuses_nobody(time_outs: int) -> None:
    scene = Scene(processes=2)
    scene.slow(0.005, count=8)
    elsewhere = scene.come(process=1)
    for _ in range(time_outs):
        waiter = scene.come()
        scene.now += TIMEOUT
        waiter.go()
    waiter = scene.come()
    scene.now += 0.1
    elsewhere.leave()
    waiter.go()
    callers = [waiter, *(scene.come() for _ in range(16))]
    scene.serve(callers, 0.005)


def test_who_tries_once_counts_for_nothing() -> None:
    scene = Scene(processes=2)
    scene.come(process=1)
    for _ in range(100):
        scene.now += 1.0
        assert scene.come(timeout=0.0).done
    for _ in range(10):
        scene.come()


def test_a_line_that_becomes_fast_is_long_again_soon() -> None:
    scene = Scene()
    scene.slow(3.0)
    scene.slow(0.005, count=50)
    for _ in range(50):
        scene.come()


def test_a_few_quick_grants_do_not_make_a_slow_line_quick() -> None:
    scene = Scene()
    scene.slow(2.0)
    scene.slow(0.1, count=4)
    for _ in range(4):
        scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_a_line_longer_than_what_is_remembered_is_as_slow() -> None:
    scene = Scene()
    scene.slow(0.01, count=2 * MOST_GAPS)
    for _ in range(390):
        scene.come()
    for _ in range(20):
        scene.come(timeout=math.inf)
    with pytest.raises(TooManyWaiters):
        scene.come()


# -- what is remembered ----------------------------------------------------------------------------


def test_a_line_that_was_slow_is_remembered_when_all_have_gone() -> None:
    scene = Scene()
    scene.slow(3.0)
    assert not scene.all[0].engine.queues.by_key
    scene.come()
    scene.come()
    with pytest.raises(TooManyWaiters):
        scene.come()


def test_what_is_remembered_is_forgotten_in_time() -> None:
    scene = Scene()
    scene.slow(2.0)
    scene.now += 60.0
    for _ in range(50):
        scene.come()


def test_only_so_many_names_that_were_waited_for_are_remembered() -> None:
    scene = Scene()
    queues = scene.all[0].engine.queues
    for number in range(REMEMBERED + 10):
        scene.serve([scene.come(f"alone_{number}")], 0.0)
    assert not queues.admission.remembered
    for number in range(REMEMBERED + 10):
        scene.slow(1.0, f"hot_{number}", count=2)
    assert len(queues.admission.remembered) == REMEMBERED
    assert f":hot_{REMEMBERED + 9}" in queues.admission.remembered


# -- a slow view under load ------------------------------------------------------------------------


def test_behind_a_slow_view_hardly_anybody_waits_in_vain() -> None:
    rush = Rush(processes=2)
    assert rush.in_vain < 0.05 * rush.admitted
    # And the lock was never idle for want of somebody to take it.
    assert rush.sold > 0.9 * rush.until / 1.1


def test_what_is_added_up_once_for_a_long_line_keeps_up_with_each_grant() -> None:
    pace, chance, gaps = Pace(), random.Random(1), list[float]()
    for number in range(3 * MOST_GAPS):
        gaps.append(chance.expovariate(1.0))
        pace.granted(gaps[-1], float(number), whole=True)
        for grants in (2, MOST_GAPS - 1, MOST_GAPS, 2 * MOST_GAPS):
            seen = gaps[-MOST_GAPS:][-grants:]
            usual = 2 * (sum(seen) - max(seen)) if len(gaps) >= COMPARABLE else sum(seen)
            expected = min(sum(seen), usual) * max(1.0, grants / MOST_GAPS)
            assert pace.past(grants) == pytest.approx(expected)


def test_who_comes_in_without_a_closer_look_would_come_in_after_one() -> None:
    chance = random.Random(11)
    for _ in range(200):
        pace, now = Pace(), 0.0
        for _ in range(chance.randrange(1, 3 * MOST_GAPS)):
            gap = chance.choice((0.001, 0.1, 5.0)) * chance.random()
            now += gap
            pace.granted(gap, now, whole=chance.random() < 0.8)
        for grants in (1, 2, COMPARABLE, MOST_GAPS - 1, MOST_GAPS, MOST_GAPS + 1, 5 * MOST_GAPS):
            at_most = pace.expected_at_most(grants, 0.5)
            assert pace.expected(grants, 0.5) <= at_most * (1 + 1e-9)


def test_a_line_that_became_fast_needs_no_closer_look_any_more() -> None:
    pace = Pace()
    for number in range(4 * MOST_GAPS):
        pace.granted(10.0 if number < MOST_GAPS else 0.001, float(number), whole=True)
    assert pace.expected_at_most(2, 0.0) < 1.0


# -- refusals are logged as counts ------------------------------------------------------------------


def refusal(name: str) -> distlock.TooManyWaiters:
    return distlock.TooManyWaiters(f"No room for {name!r}.", name=name)


def test_one_count_for_each_name_and_second() -> None:
    now = [0.0]
    refusals = counting(now)
    for number in range(3000):
        now[0] = number / 3000
        refusals.note(refusal(f"product_{number % 2}"))
    assert refusals.due(0.0) == LOG_PERIOD
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
    refusals.note(refusal("a"))
    for now[0], logged in ((LOG_PERIOD / 2, 0), (LOG_PERIOD, 1)):
        run(refusals.tick(lambda: 0.0))
        assert len(caplog.records) == logged


def test_names_that_clients_make_up_share_a_line() -> None:
    refusals = counting([0.0])
    for number in range(100 * NAMES):
        refusals.note(refusal(f"product_{number}"))
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
        assert len(counts(caplog)) <= 1 + (distlock.clock.now() - began) / LOG_PERIOD


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
