"""Writers, readers, downgrades and permits at once, some of whom hang, give up or lose their connection."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from distlock.backends.base import PERMIT, READ, Acquired, Busy, LockRequest
from distlock.errors import BackendUnavailable
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, permit, reader, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer

T = TypeVar("T")

#: How often each of them tries.
TIMES = 40
LIMIT = 4


class Inside:
    """What is inside by now, as those say that are."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.writers = self.readers = self.permits = self.entered = 0
        self.wrong: list[str] = []

    def change(self, writers: int = 0, readers: int = 0, permits: int = 0) -> None:
        with self._mutex:
            self.writers += writers
            self.readers += readers
            self.permits += permits
            self.entered += max(writers, readers, permits) > 0
            if self.writers > 1 or (self.writers and self.readers) or self.permits > LIMIT:
                self.wrong.append(
                    f"{self.writers} write, {self.readers} read, {self.permits} permits are out"
                )


class Caller:
    def __init__(self, one: Contender, seed: int, inside: Inside) -> None:
        self._one = one
        self._random = random.Random(seed)
        self._inside = inside
        self._pause = threading.Event()

    def come_and_go(self, key: str, kind: str) -> None:
        for _ in range(TIMES):
            mine = self._some_ask(key, kind)
            if self._enter(mine):
                self._be_inside(mine)

    def _some_ask(self, key: str, kind: str) -> LockRequest:
        if kind == PERMIT:
            return permit(key, LIMIT, self._random.randint(1, 3), wait=self._random.random() > 0.1)
        make: Callable[..., LockRequest] = reader if kind == READ else ask
        return make(key, wait=self._random.random() > 0.1)

    def _enter(self, mine: LockRequest) -> bool:
        patience = self._random.choice([3, 1000])
        while True:
            answer = self._again(lambda: self._one.request(mine))
            if isinstance(answer, Acquired):
                return True
            patience -= 1
            if answer == Busy():
                return False
            if not patience:
                return bool(self._again(lambda: self._one.cancel(mine)))
            # Some are slower than the window that they have.
            self._pause.wait(self._random.choice([0.0, 0.002, 0.03]))

    def _be_inside(self, mine: LockRequest) -> None:
        change = self._inside.change
        if mine.mode == PERMIT:
            change(permits=mine.permits)
            self._pause.wait(0.001)
            change(permits=-mine.permits)
        elif mine.mode == READ:
            self._read(mine)
        else:
            change(writers=1)
            self._pause.wait(0.001)
            if self._random.random() < 0.3:
                # From then on readers may be there, too.
                change(writers=-1, readers=1)
                assert self._again(lambda: self._one.downgrade(mine))
                change(readers=-1)
                mine.mode = READ
                self._read(mine)
            else:
                change(writers=-1)
        self._release(mine)

    def _read(self, mine: LockRequest) -> None:
        assert isinstance(self._again(lambda: self._one.request(mine)), Acquired)
        self._inside.change(readers=1)
        self._pause.wait(0.001)
        self._inside.change(readers=-1)

    def _release(self, mine: LockRequest) -> None:
        if self._random.random() < 0.5:
            self._one.post(mine, lambda _: None)
        else:
            assert self._again(lambda: self._one.release(mine))

    def _again(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except BackendUnavailable:
                pass


@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_inside_with_somebody_that_it_excludes_and_nothing_is_left(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender, seed: int
) -> None:
    lock, permits, inside = some_key(), some_key(), Inside()
    over = threading.Event()

    def break_connections() -> None:
        while not over.wait(0.1):
            proxy.lose_reply()

    clients = [contender(url, ack_window=0.02) for url in (zookeeper_server.url, proxy.url, proxy.url)]
    jobs = [(lock, "exclusive"), (lock, READ), (lock, READ), (permits, PERMIT), (permits, PERMIT)]
    with ThreadPoolExecutor(len(clients) * len(jobs) + 1) as pool:
        breaking = pool.submit(break_connections)
        try:
            tasks = [
                pool.submit(Caller(one, seed * 100 + number, inside).come_and_go, key, kind)
                for number, one in enumerate(clients)
                for key, kind in jobs
            ]
            for task in tasks:
                task.result()
        finally:
            over.set()
        breaking.result()
    assert inside.wrong == []
    assert (inside.writers, inside.readers, inside.permits) == (0, 0, 0)
    assert inside.entered > len(jobs) * TIMES
    for key in (lock, permits):
        eventually(lambda key=key: not zookeeper_server.children(key), "nobody is in line")  # type: ignore[misc]
