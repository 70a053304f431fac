"""A signal handler or a finaliser calls us while its own thread is inside our code: it never hangs."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_until
from tests.core.interrupts import Tracer
from tests.core.test_interrupts import check
from tests.redis_server import RedisServer

#: Seconds that no call takes, unless it hangs.
CEILING = 30.0
TTL = 300.0


@contextmanager
def no_hang(where: Callable[[], str]) -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"A handler hangs at {where()}.")

    before = signal.signal(signal.SIGALRM, hangs)
    # Again and again: what is torn out of one wait may go into the next one.
    signal.setitimer(signal.ITIMER_REAL, CEILING, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Case:
    """What a handler has at hand: a grant that is out, a lock that is held, a block that is open."""

    def __init__(self, url: str) -> None:
        self.locks = distlock.connect(url, prefix="h", ttl=TTL, timeout=CEILING)
        self.other = distlock.connect(url, prefix="h", ttl=TTL, timeout=CEILING)
        self.block = ExitStack()
        self.lock = self.locks.lock("lock")
        self.answers: list[object] = []
        self.refused = 0
        self.words = ""

    def prepare(self) -> None:
        grant = self.locks.lock("grant").acquire()
        assert grant is not None
        self.grant = grant
        assert self.lock.acquire()
        self.block.enter_context(self.locks.lock("block"))

    def traced(self) -> None:
        """What the handler comes into."""
        with self.locks.lock("a", "b"):
            pass
        lock = self.locks.lock("c")
        assert lock.acquire(timeout=0)
        lock.locked()
        lock.release()

    def clean_up(self) -> None:
        """Whatever the handler has released is free, and all the rest can be released."""
        self.grant.release()
        if self.lock.owned():
            self.lock.release()
        self.block.close()
        for name in ("grant", "lock", "block", "a", "b", "c", "free"):
            grant = self.other.lock(name).acquire()
            assert grant is not None, name
            grant.release()
        check(engine_of(self.locks))

    def close(self) -> None:
        self.locks.close()
        self.other.close()


def release_a_grant(case: Case) -> None:
    case.grant.release()
    assert case.grant.released


def release_a_lock(case: Case) -> None:
    case.lock.release()
    assert not case.lock.owned()


def leave_a_block(case: Case) -> None:
    case.block.close()


@dataclass
class Garbage:
    grant: distlock.Grant

    def __post_init__(self) -> None:
        self.ring = self

    def __del__(self) -> None:
        self.grant.release()


def collect_a_grant(case: Case) -> None:
    Garbage(case.grant)
    gc.collect(0)
    assert case.grant.released


def check_a_grant(case: Case) -> None:
    case.grant.check()
    assert not case.grant.lost


def acquire(case: Case, name: str, timeout: float) -> None:
    try:
        grant = case.locks.lock(name).acquire(timeout=timeout)
    except distlock.Reentered as error:
        case.refused += 1
        case.words = str(error)
        return
    case.answers.append(grant)
    if grant is not None:
        assert name == "free"
        grant.release()


def acquire_what_is_free(case: Case) -> None:
    acquire(case, "free", CEILING)


def try_what_is_free(case: Case) -> None:
    acquire(case, "free", 0)


def try_what_is_held(case: Case) -> None:
    acquire(case, "grant", 0)
    assert case.answers == [None], "that it is held is known here"
    case.answers.clear()


def ask_whether_it_is_held(case: Case) -> None:
    assert case.locks.lock("grant").locked()
    try:
        case.answers.append(case.locks.lock("free").locked())
    except distlock.Reentered:
        case.refused += 1


RELEASES = [release_a_grant, release_a_lock, leave_a_block, collect_a_grant]
QUESTIONS = [check_a_grant, try_what_is_held]
#: They can't be answered in the middle of a call to the lock service, and can everywhere else.
REFUSED_AT_TIMES = [acquire_what_is_free, try_what_is_free, ask_whether_it_is_held]


@pytest.mark.parametrize("handler", [*RELEASES, *QUESTIONS, *REFUSED_AT_TIMES])
def test_a_handler_at_any_moment_ends(handler: Callable[[Case], None]) -> None:
    play(handler, f"memory://{handler.__name__}", every=4)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("handler", [release_a_grant, try_what_is_free])
def test_so_does_one_on_redis(handler: Callable[[Case], None], redis_server: RedisServer) -> None:
    play(handler, redis_server.url, every=23)


def play(handler: Callable[[Case], None], url: str, every: int) -> None:
    case = Case(url)
    rounds = 0
    for number in itertools.count(1, every):
        case.prepare()
        tracer = Tracer(number, lambda: handler(case))
        with no_hang(lambda one=tracer: one.where), tracer:  # type: ignore[misc]
            case.traced()
        case.clean_up()
        if not tracer.where:
            break
        rounds += 1
    assert rounds * every > 300, f"{rounds} rounds: is anything traced?"
    if handler in REFUSED_AT_TIMES:
        assert len(case.answers) + case.refused == rounds
        assert case.answers, "between two calls to the service there is an answer"
        assert case.refused, "in the middle of one there is none"
    if case.words:
        assert "signal handler" in case.words, "the cause"
        assert "Set a flag" in case.words, "the remedy"
    case.close()


def test_closing_at_any_moment_ends() -> None:
    for number in itertools.count(1, 3):
        case = Case("memory://closed-by-a-handler")
        case.prepare()
        tracer = Tracer(number, case.locks.close)
        with no_hang(lambda one=tracer: one.where), tracer:  # type: ignore[misc]
            try:
                case.traced()
            except (distlock.LockError, AssertionError):
                pass  # It was closed under it.
        if not tracer.where:
            case.close()
            break
        wait_until(lambda one=case: one.grant.lost, "the client is closed")  # type: ignore[misc]
        wait_until(lambda: not closing(), "the closing thread has ended")
        for name in ("grant", "lock", "block"):
            grant = case.other.lock(name).acquire()
            assert grant is not None, name
            grant.release()
        case.close()


def closing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "distlock-close"]


def test_garbage_that_the_keeper_collects_under_the_mutex_is_released() -> None:
    case = Case("memory://garbage-of-the-keeper")
    case.prepare()
    engine = engine_of(case.locks)
    real, done = engine.now, threading.Event()

    def now() -> float:
        if threading.current_thread().name == "distlock-maintenance" and not done.is_set():
            done.set()
            case.grant.release()
        return real()

    engine.renewer._now = now
    with engine.section.mutex:
        engine.renewer.confirm_all()
    assert done.wait(CEILING)
    case.clean_up()
    case.close()


def test_a_handler_does_not_wait_behind_the_thread_that_it_has_interrupted() -> None:
    """It would wait for ever, were both without a time-out: the thread beneath leads, and can't go on."""
    case = Case("memory://handler-behind-its-thread")
    holder = case.other.lock("a").acquire()
    assert holder is not None
    refused: list[BaseException] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            case.locks.lock("a").acquire(timeout=-1)
        except distlock.Reentered as error:
            refused.append(error)
        assert case.locks.lock("free").acquire(timeout=0), "another name may be asked for"
        assert holder is not None
        holder.release()

    def interrupt() -> None:
        wait_until(lambda: engine_of(case.locks).queues.waiting == 1, "it waits")
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        grant = case.locks.lock("a").acquire(timeout=CEILING)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert grant is not None
    assert len(refused) == 1
    case.close()
