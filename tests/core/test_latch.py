"""Latches: what may be asked for, forks, and signal handlers at any moment. The rest is in the kit."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.testing.waits import PATIENCE, engine_of, latch_waiters, wait_for_latch_waiters, wait_until
from tests.core.interrupts import Interrupted, Tracer, interrupted
from tests.flask_guard import dummy_locks


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{request.node.name}", prefix="shop", timeout=PATIENCE)
    yield locks
    locks.close()


# -- what may be asked for -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 1.0, "3", True, 10**10])
def test_a_count_that_cant_be_is_refused(locks: distlock.Locks, count: Any) -> None:
    with pytest.raises(distlock.ConfigurationError, match="count="):
        locks.latch("import", count)


def test_other_things_that_cant_be_are_refused(locks: distlock.Locks) -> None:
    with pytest.raises(distlock.InvalidName):
        locks.latch("")
    with pytest.raises(distlock.ConfigurationError, match="ttl="):
        locks.latch("import", 3, ttl=0)
    with pytest.raises(ValueError, match="non-negative"):
        locks.latch("import", 3, timeout=-2)
    with pytest.raises(TypeError, match="ttl="):
        locks.latch("import", 3, expire=3)  # type: ignore[arg-type]
    latch = locks.latch("import")
    with pytest.raises(distlock.ConfigurationError, match=r"locks\.latch\('import', 3\)\.make\(\)"):
        latch.make()
    with pytest.raises(distlock.ConfigurationError, match="by=0"):
        latch.count_down(by=0)
    with pytest.raises(TypeError, match=r"str\(value\)"):
        latch.count_down(part=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-negative"):
        latch.wait(-2)
    with pytest.raises(OverflowError):
        latch.wait(1e10)


def test_a_lock_service_that_has_none_is_refused() -> None:
    locks = distlock.connect("mysql://user@localhost/shop")
    with pytest.raises(distlock.ConfigurationError, match=r"latch\(\) can't be had from .*mysql"):
        locks.latch("import")
    locks.close()


def test_another_prefix_has_other_latches(locks: distlock.Locks, request: pytest.FixtureRequest) -> None:
    other = distlock.connect(f"memory://{request.node.name}", prefix="depot")
    locks.latch("import", 1).make()
    with pytest.raises(distlock.LatchNotFound):
        other.latch("import").count()
    other.close()


def test_one_of_nothing_is_open(locks: distlock.Locks) -> None:
    locks.latch("import", 0).make()
    assert locks.latch("import").wait(0)
    assert locks.latch("import").wait()


def test_where_locking_is_switched_off_a_latch_is_one_of_this_process() -> None:
    locks = dummy_locks(TIMEOUT=PATIENCE)
    locks.latch("import", 1).make()
    assert not locks.latch("import").wait(0.05)
    thread = threading.Thread(target=lambda: locks.latch("import").count_down())
    thread.start()
    assert locks.latch("import").wait()
    thread.join()
    with pytest.raises(distlock.LatchNotFound):
        dummy_locks().latch("import").count()
    locks.close()


# -- forks ---------------------------------------------------------------------------------------

FORKING = """
import os, sys, threading
import distlock

locks = distlock.connect(sys.argv[1], prefix="shop", timeout=20)
both, parents = locks.latch("both", 2), locks.latch("parents", 1)
assert both.make() and parents.make()
opened = []
waiting = threading.Thread(target=lambda: opened.append(both.wait()))
waiting.start()
assert not both.wait(0.2)
waits, has_it, over = locks.namespace.latches, threading.Event(), threading.Event()

def keep():
    with waits._mutex:
        has_it.set()
        over.wait(20)

# Another thread is in the middle of something when the process forks.
busy = threading.Thread(target=keep)
busy.start()
has_it.wait()
if (child := os.fork()) == 0:
    code = 1
    try:
        assert not waits._watched
        assert not both.wait(0)
        both.count_down(part="child")
        assert parents.wait() and both.wait()
        code = 0
    finally:
        os._exit(code)
over.set()
both.count_down(part="parent")
waiting.join(20)
assert opened == [True]
parents.count_down()
assert os.waitpid(child, 0)[1] == 0
locks.close()
"""


def test_a_forked_child_waits_and_counts_as_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, f"file://{tmp_path}/locks"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# -- signal handlers -----------------------------------------------------------------------------


def test_a_signal_handler_counts_down_for_the_thread_that_it_interrupts(locks: distlock.Locks) -> None:
    locks.latch("import", 1).make()
    before = signal.signal(signal.SIGUSR1, lambda *_: locks.latch("import").count_down() and None)
    main = threading.get_ident()

    def interrupt() -> None:
        wait_for_latch_waiters(locks, 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert locks.latch("import").wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()


def scene(locks: distlock.Locks) -> None:
    latch = locks.latch("import", 1)
    latch.make()
    with suppress(distlock.BackendUnavailable):  # a busy machine has not looked by then
        latch.wait(0.001)
    latch.count_down()
    assert latch.wait(PATIENCE)


def check(locks: distlock.Locks) -> None:
    """Nothing is left of those that waited, and others go on."""
    waits = locks.namespace.latches
    assert waits._mutex.acquire(timeout=PATIENCE)
    waits._mutex.release()
    wait_until(lambda: latch_waiters(locks) == 0, "nobody waits")
    after = locks.latch("after", 1)
    after.make()
    after.count_down()
    assert after.wait()


def new(place: str) -> distlock.Locks:
    locks = distlock.connect(f"memory://{place}", timeout=PATIENCE)
    locks.latch("handlers", 10).make()
    return locks


def test_an_exception_at_any_moment_leaves_nothing_behind() -> None:
    for number in itertools.count(1):
        locks = new(f"exception-{number}")
        where = interrupted(lambda one=locks: scene(one), number)  # type: ignore[misc]
        check(locks)
        locks.close()
        if where is None:
            break
    assert number > 100, "is anything traced?"


def wait_a_moment(locks: distlock.Locks) -> None:
    locks.latch("handlers").wait(0.001)


def look(locks: distlock.Locks) -> None:
    locks.latch("handlers").wait(0)


def count_down(locks: distlock.Locks) -> None:
    locks.latch("handlers").count_down()


@pytest.mark.parametrize("handler", [wait_a_moment, look, count_down, distlock.Locks.close])
def test_a_handler_at_any_moment_ends(handler: Callable[[distlock.Locks], None]) -> None:
    rounds, refused = 0, 0
    for number in itertools.count(1, 2):
        locks = new(f"{handler.__name__}-{number}")

        def handle(one: distlock.Locks = locks) -> None:
            nonlocal refused
            try:
                handler(one)
            except distlock.Reentered:
                refused += 1

        tracer = Tracer(number, handle)
        # It may be closed under those that wait.
        with suppress(distlock.BackendUnavailable), tracer:
            scene(locks)
        for thread in threading.enumerate():
            if thread.name == "distlock-close":  # closes what its handler could not
                thread.join(PATIENCE)
        check(locks)
        locks.close()
        if not tracer.where:
            break
        rounds += 1
    assert rounds > 50, "is anything traced?"
    assert refused < rounds, "where nothing is under way there is an answer"


def test_a_close_inside_of_the_engine_does_not_wait_for_the_thread_of_the_latches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = new("aside")
    section, waits = engine_of(locks).section, locks.namespace.latches
    says, closed, announce = threading.Event(), threading.Event(), waits._publish_soon

    def say() -> None:
        says.set()
        announce()  # under the mutex

    def wait() -> None:
        with pytest.raises(distlock.BackendUnavailable, match="closed"):
            locks.latch("handlers").wait()
        closed.set()

    monkeypatch.setattr(waits, "_publish_soon", say)
    thread = threading.Thread(target=wait)
    with section.mutex:
        thread.start()
        assert says.wait(PATIENCE)
        locks.close()
    assert closed.wait(PATIENCE)
    thread.join(PATIENCE)


def test_who_waits_is_told_that_a_latch_is_open_also_where_nobody_can_be_told_that_it_waits(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, opened = threading.Event(), threading.Event()

    def lasts() -> None:
        asked.set()
        raise distlock.BackendUnavailable("This process can start no more threads.")

    def wait() -> None:
        if locks.latch("import").wait():
            opened.set()

    monkeypatch.setattr(locks.namespace.latches, "_publish_soon", lasts)
    locks.latch("import", 1).make()
    thread = threading.Thread(target=wait)
    thread.start()
    assert asked.wait(PATIENCE)
    locks.latch("import").count_down()
    thread.join(PATIENCE)
    assert opened.is_set()


def test_a_handler_at_any_moment_of_a_close_ends() -> None:
    refused = 0
    for number in itertools.count(1):
        locks = new(f"closing-{number}")

        def handle(one: distlock.Locks = locks) -> None:
            nonlocal refused
            try:
                # It may be closed by then.
                with suppress(distlock.BackendUnavailable):
                    one.latch("another", 1).make()
                    one.latch("another").wait(0.001)
            except distlock.Reentered:
                refused += 1

        ended: list[BaseException] = []

        def wait(one: distlock.Locks = locks, ended: list[BaseException] = ended) -> None:
            try:
                one.latch("handlers").wait()
            except distlock.BackendUnavailable as error:
                ended.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_for_latch_waiters(locks, 1)
        tracer = Tracer(number, handle, files=("locks/latch_waits.py", "locks/engine_namespace.py"))
        with tracer:
            locks.close()
        waiting.join(PATIENCE)
        assert len(ended) == 1
        check(locks)
        locks.close()
        if not tracer.where:
            break
    assert number > 10, "is anything traced?"
    assert refused, "in the middle of it there is no answer"


@pytest.mark.parametrize(("is_there", "answer"), [(True, 0), (False, "LatchGone")], ids=["open", "gone"])
def test_a_waiter_whose_time_is_over_gets_the_answer_of_the_first_look(
    is_there: bool, answer: object, locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, sleeps, ended = locks.namespace.latches, threading.Event(), threading.Event()
    answers: list[object] = []
    look_at_latches = waits.latches.look_at_latches

    def look(*about: Any) -> Sequence[Any]:
        assert sleeps.wait(PATIENCE)
        return look_at_latches(*about)

    class Quick:
        """The parker of a waiter that goes on before the thread that wakes it does."""

        def alive(self) -> bool:
            return True

        def wake(self) -> None:
            if not ended.is_set():
                try:
                    next(steps)
                except StopIteration as end:
                    answers.append(end.value and end.value.left)
                except Exception as error:
                    answers.append(type(error).__name__)
                ended.set()

    if is_there:
        locks.latch("import", 1).make()
        locks.latch("import").count_down()
    monkeypatch.setattr(waits.latches, "look_at_latches", look)
    steps = waits.wait(locks.latch("import")._key, Quick(), time.monotonic())
    next(steps)
    sleeps.set()
    assert ended.wait(PATIENCE)
    assert answers == [answer]


def test_a_wait_can_be_interrupted(locks: distlock.Locks) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    locks.latch("import", 1).make()
    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()

    def send() -> None:
        wait_for_latch_waiters(locks, 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            locks.latch("import").wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
    assert latch_waiters(locks) == 0
