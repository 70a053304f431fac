"""Everything at once: contenders in a hurry, while connections break and the server forgets its scripts."""

from __future__ import annotations

import threading
import time

from distlock.backends.base import Held
from distlock.errors import BackendUnavailable
from distlock.testing.history import Record, check_history
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import RedisServer

ROUNDS = 400
CONTENDERS = 5


class Alarm:
    """A sink that wakes the waiter, as the engine does."""

    def __init__(self) -> None:
        self.rang = threading.Event()

    def hint(self, key: str) -> None:
        self.rang.set()

    def lost(self, key: str, token: str) -> None:
        self.rang.set()

    def doubt(self) -> None:
        self.rang.set()

    def reconnected(self) -> None: ...


def take_turns(one: Contender, who: str, key: str, history: list[Record], alarm: Alarm) -> None:
    for _ in range(ROUNDS):
        mine = ask(key)
        asked = time.monotonic()
        while True:
            alarm.rang.clear()
            try:
                answer = one.request(mine)
            except BackendUnavailable:
                continue
            if isinstance(answer, Held):
                break
            alarm.rang.wait(getattr(answer, "poll", 0))
        granted = time.monotonic()
        released = time.monotonic()
        while True:
            try:
                one.release(mine)
                break
            except BackendUnavailable:
                continue
        history.append(Record(key, who, asked, granted, released, (0, answer.number)))


def test_one_is_inside_at_a_time_whatever_breaks(own_server: RedisServer, contender: MakeContender) -> None:
    key = some_key()
    history: list[Record] = []
    threads = []
    for number in range(CONTENDERS):
        one = contender(own_server.url, ack_window=0.1)
        alarm = Alarm()
        one.open(alarm)
        threads.append(
            threading.Thread(target=take_turns, args=(one, str(number), key, history, alarm), daemon=True)
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
