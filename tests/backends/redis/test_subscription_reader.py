"""A thread that waits reads the subscription: a push wakes one thread, and none is left without a reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import subscription
from distlock.engine.sans_io import ThreadParker
from distlock.signal_safety import Flag
from tests.backends.redis import contender as contenders
from tests.backends.redis.contender import Contender, MakeContender
from tests.redis_server import PATIENCE, RedisServer, eventually


def ask(key: str = "") -> LockRequest:
    """As the engine asks for a thread."""
    mine = contenders.ask(key)
    mine.prompt = True
    return mine


class Waiter:
    """A thread that waits for *mine*, and asks again whenever it wakes."""

    def __init__(self, one: Contender, mine: LockRequest, timeout: float = PATIENCE) -> None:
        self.parker = ThreadParker()
        #: How often it was told that it is about to sleep.
        self.told = list[None]()
        #: Whether it sleeps, or reads.
        self.sleeps = False
        self.parker.before_sleep = self._note
        self._timeout = timeout
        self.mine = mine
        self._one = one
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.failure: BaseException | None = None
        self.thread.start()

    def _wait(self) -> None:
        try:
            self._one.wait(self.parker, self._timeout)
        except BaseException as error:
            self.failure = error

    def _note(self) -> None:
        self.sleeps = True
        self.told.append(None)

    def woke(self) -> bool:
        self.thread.join(PATIENCE / 2)
        return not self.thread.is_alive()


class Hearing(Contender):
    """Its sink wakes the gates of its waiters, as the engine does. Says which thread heard what."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.parkers = dict[str, ThreadParker]()
        self.heard_by = dict[str, threading.Thread]()
        self.error: BaseException | None = None
        told = self.sink.notified

        def notified(key: str) -> None:
            self.heard_by[key] = threading.current_thread()
            told(key)
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if key in self.parkers:
                self.parkers[key].wake()

        self.sink.notified = notified  # type: ignore[method-assign]

    def await_push(self, mine: LockRequest) -> Waiter:
        self.queue(mine)
        waiter = Waiter(self, mine)
        self.parkers[mine.key] = waiter.parker
        return waiter

    @property
    def sleeping(self) -> int:
        assert self._subscription is not None
        return len(self._subscription._reader._sleepers)

    @property
    def reads(self) -> bool:
        """Whether one of its waiters reads."""
        assert self._subscription is not None
        return self._subscription._reader._was_led and self._subscription._reader._leadership.locked()


@pytest.fixture
def two(redis_server: RedisServer) -> Iterator[Hearing]:
    """A process whose listener's thread has told a push, and naps."""
    with_listener = Hearing(redis_server.url)
    yield with_listener
    with_listener.close()


@pytest.fixture
def one(redis_server: RedisServer, contender: MakeContender) -> Contender:
    return contender(redis_server.url)


def held(one: Contender) -> LockRequest:
    """A lock that *one* holds."""
    one.hold(mine := ask())
    return mine


def warm_up(one: Contender, two: Hearing) -> None:
    """Have two's listener tell a push, until one that waits reads."""

    def read() -> bool:
        first = held(one)
        waiter = two.await_push(ask(first.key))
        one.release(first)
        assert waiter.woke()
        two.release(waiter.mine)
        return two.heard_by[first.key] is waiter.thread

    eventually(read, "one that waits reads")


def test_a_push_is_heard_by_the_thread_that_it_wakes(one: Contender, two: Hearing) -> None:
    warm_up(one, two)


#: Seconds that no test waits for.
LONG = 60.0


def test_who_reads_wakes_the_others_and_leaves_them_a_reader(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(one, two)
    monkeypatch.setattr(subscription, "NAP", LONG)
    firsts = [held(one) for _ in range(3)]
    waiters = [two.await_push(ask(first.key)) for first in firsts]
    for first, waiter in zip(firsts, waiters, strict=True):
        one.release(first)
        assert waiter.woke()


def test_the_listener_reads_on_for_those_that_it_has_not_woken(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "NAP", LONG)
    firsts = [held(one) for _ in range(2)]
    waiters = [two.await_push(ask(first.key)) for first in firsts]
    eventually(lambda: two.sleeping == 2, "both sleep")
    for first, waiter in zip(firsts, waiters, strict=True):
        one.release(first)
        assert waiter.woke()


def test_in_any_order(one: Contender, two: Hearing) -> None:
    warm_up(one, two)
    firsts = [held(one) for _ in range(3)]
    waiters = [two.await_push(ask(first.key)) for first in firsts]
    for first, waiter in reversed([*zip(firsts, waiters, strict=True)]):
        one.release(first)
        assert waiter.woke()


def test_when_nobody_waits_the_listener_reads_again(one: Contender, two: Hearing) -> None:
    warm_up(one, two)
    first = held(one)
    two.queue(ask(first.key))
    one.release(first)
    assert two.sink.wait_for_notification(first.key)
    assert two.heard_by[first.key].name == "distlock-redis-listener"


@pytest.fixture
def deep_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naps that nobody ends last longer than any test."""
    monkeypatch.setattr(subscription, "NAP", 10 * PATIENCE)


def test_who_leaves_has_the_listener_read_for_those_that_sleep_at_their_gates(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(one, two)
    monkeypatch.setattr(subscription, "NAP", 10 * PATIENCE)
    firsts = [held(one) for _ in range(2)]
    reads = two.await_push(ask(firsts[0].key))
    eventually(lambda: two.reads, "it reads")
    sleeps = two.await_push(ask(firsts[1].key))
    eventually(lambda: sleeps.sleeps, "the other one sleeps at its gate")
    for first, waiter in zip(firsts, (reads, sleeps), strict=True):
        one.release(first)
        assert waiter.woke()


def test_while_no_thread_waits_the_listener_does_not_nap(
    one: Contender, two: Hearing, deep_sleep: None
) -> None:
    for _ in range(3):
        first = held(one)
        two.queue(ask(first.key))
        one.release(first)
        assert two.sink.wait_for_notification(first.key)


def test_while_a_task_waits_the_listener_does_not_nap(deep_sleep: None) -> None:
    mine, woken = subscription.SubscriptionReader(lambda connection: None), ThreadParker()
    woken.wake()
    mine._sleepers.add(woken)
    mine.stay_until(clock.now() + 10 * PATIENCE)
    # The first time that it is told so ends a nap.
    for _ in range(2):
        listener = threading.Thread(target=mine.delegate, args=(Flag(),), daemon=True)
        listener.start()
        listener.join(PATIENCE / 2)
        assert not listener.is_alive()


def test_who_has_read_leaves_a_task_a_reader(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(one, two)
    monkeypatch.setattr(subscription, "NAP", 10 * PATIENCE)
    firsts = [held(one) for _ in range(2)]
    thread = two.await_push(ask(firsts[0].key))
    eventually(lambda: two.reads, "it reads")
    # A thread asks here: often it does so for the first question of a task.
    two.queue(contenders.ask(firsts[1].key))
    assert two._subscription is not None
    hearing = two._subscription._reader
    hearing._tasks_until += 10 * PATIENCE
    # The listener's thread looks, and naps again: somebody reads.
    eventually(lambda: not hearing._was_led and hearing._called.locked(), "it has looked")
    for first in firsts:
        one.release(first)
        assert two.sink.wait_for_notification(first.key)
    assert thread.woke()


def reader(one: Contender, two: Hearing) -> tuple[LockRequest, Waiter]:
    """One that waits, and reads, and the hold that it waits for."""
    warm_up(one, two)
    first = held(one)
    waiter = two.await_push(ask(first.key))
    eventually(lambda: two.reads, "it reads")
    return first, waiter


def test_an_error_in_the_reader_has_the_listener_subscribe_anew(one: Contender, two: Hearing) -> None:
    first, waiter = reader(one, two)
    assert two._subscription is not None
    connection = two._subscription._reader.connection
    assert connection is not None
    connection.disconnect()
    eventually(lambda: two.sink.missed >= 2, "it doubted when the connection broke and when it was back")
    assert waiter.thread.is_alive()
    two.queue(waiter.mine)
    one.release(first)
    assert waiter.woke()
    assert waiter.failure is None


def test_what_the_reader_has_met_is_in_the_log(
    own_server: RedisServer, contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = contender(own_server.url), Hearing(own_server.url)
    _, waiter = reader(one, two)
    own_server.tell("CLIENT", "KILL", "TYPE", "pubsub")
    eventually(lambda: two.sink.missed >= 2, "it doubted when the connection broke and when it was back")
    assert "it closed the connection" in caplog.text
    assert "descriptor" not in caplog.text
    two.close()
    waiter.parker.wake()
    assert waiter.woke()


def test_an_interrupt_in_the_middle_of_a_message_is_raised_and_costs_a_subscription(
    one: Contender, two: Hearing
) -> None:
    class Interrupt(BaseException):
        pass

    first, waiter = reader(one, two)
    two.error = Interrupt()
    one.release(first)
    assert waiter.woke()
    assert isinstance(waiter.failure, Interrupt)
    eventually(lambda: two.sink.missed >= 2, "it doubted when the connection broke and when it was back")
    warm_up(one, two)


def test_a_close_ends_the_reading(one: Contender, two: Hearing) -> None:
    _, waiter = reader(one, two)
    two.close()
    # It sleeps on, as it would without anything to read: the engine wakes it.
    waiter.parker.wake()
    assert waiter.woke()
    assert waiter.failure is None
    assert not any(thread.name == "distlock-redis-listener" for thread in threading.enumerate())


def test_a_turn_that_an_interrupt_has_kept_is_taken_back(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(one, two)
    monkeypatch.setattr(subscription, "QUIET", 0.1)
    assert two._subscription is not None
    hearing = two._subscription._reader
    hearing._led_until = 0.0
    lost = hearing._leadership
    lost.acquire(timeout=PATIENCE)
    eventually(lambda: hearing._leadership is not lost, "it has another one")
    warm_up(one, two)


def test_a_wait_that_is_read_in_ends_on_time(
    one: Contender, two: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(one, two)
    monkeypatch.setattr(subscription, "QUIET", LONG)
    first = held(one)
    two.queue(ask(first.key))
    waiter = Waiter(two, ask(first.key), timeout=0.05)
    assert waiter.woke()
    assert not waiter.parker.has_wakeup()


def test_the_sleeper_is_told_before_it_sleeps(one: Contender, two: Hearing) -> None:
    """Django gives pooled connections back there."""
    first, waiter = reader(one, two)
    one.release(first)
    assert waiter.woke()
    assert waiter.told == [None]
