"""Everything at once: contenders in a hurry, while connections break and the server forgets its scripts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from distlock.backends.base import Acquired, LockRequest
from distlock.errors import BackendUnavailable
from distlock.testing.history import HistoryRecord, check_history
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import RedisServer

ROUNDS = 400
CONTENDERS = 5


class Alarm:
    """A sink that wakes the waiter, as the engine does."""

    def __init__(self) -> None:
        self.rang = threading.Event()

    def notified(self, key: str) -> None:
        self.rang.set()

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        self.notified(key)

    def lost(self, key: str, token: str) -> None:
        self.rang.set()

    def release_requested(self, key: str, token: str) -> None:
        self.rang.set()

    def missed_notifications(self) -> None:
        self.rang.set()

    def reconnected(self) -> None: ...


GiveBack = Callable[[Contender, LockRequest], None]


def release(one: Contender, mine: LockRequest) -> None:
    while True:
        try:
            one.release(mine)
            return
        except BackendUnavailable:
            continue


def post(one: Contender, mine: LockRequest) -> None:
    """As the engine does: it releases again what nothing is known of."""

    def told(ours: bool | None) -> None:
        assert ours is None, "it was ours"
        unknown.append(mine)

    unknown: list[LockRequest] = []
    try:
        one.post(mine, told)
    except BackendUnavailable:
        unknown.append(mine)
    for again in unknown:
        release(one, again)


def take_turns(
    one: Contender, who: str, key: str, history: list[HistoryRecord], alarm: Alarm, give_back: GiveBack
) -> None:
    for _ in range(ROUNDS):
        mine = ask(key)
        asked = time.monotonic()
        while True:
            alarm.rang.clear()
            try:
                answer = one.request(mine)
            except BackendUnavailable:
                continue
            if isinstance(answer, Acquired):
                break
            alarm.rang.wait(getattr(answer, "poll", 0))
        granted = time.monotonic()
        released = time.monotonic()
        give_back(one, mine)
        history.append(HistoryRecord(key, who, asked, granted, released, (0, answer.number)))
    while True:
        try:
            # What was posted is carried out before, and repeated if it was lost.
            one.locked(key)
            return
        except BackendUnavailable:
            continue


@pytest.mark.fault("F12")
@pytest.mark.parametrize("give_back", [release, post])
def test_one_is_inside_at_a_time_whatever_breaks(
    own_server: RedisServer, contender: MakeContender, give_back: GiveBack
) -> None:
    key = some_key()
    history: list[HistoryRecord] = []
    threads = []
    for number in range(CONTENDERS):
        one = contender(own_server.url, ack_window=0.1)
        alarm = Alarm()
        one.open(alarm)
        threads.append(
            threading.Thread(
                target=take_turns, args=(one, str(number), key, history, alarm, give_back), daemon=True
            )
        )
    for thread in threads:
        thread.start()
    pause = threading.Event()
    blows = 0
    while any(thread.is_alive() for thread in threads):
        kind = ("pubsub", "normal")[blows % 2]
        own_server.client.client_kill_filter(_type=kind, skipme=True)
        own_server.client.script_flush()
        blows += 1
        pause.wait(0.01)
    for thread in threads:
        thread.join()
    assert blows > 5
    assert len(history) == ROUNDS * CONTENDERS
    assert check_history(history) == []
    # Nobody was left behind in the queue, and no ghost holds the lock.
    assert not contender(own_server.url).locked(key)
