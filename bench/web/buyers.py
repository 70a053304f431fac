"""Buyers that cost little themselves: each a socket and a thread, which buys again when it is answered."""

from __future__ import annotations

import itertools
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.buyers import together

PATIENCE = 90.0
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Answers:
    """What buyers were answered."""

    #: How long each waited, seconds; in order.
    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    #: From the first one's request until all had their answers.
    seconds: float = 0.0

    @property
    def sold(self) -> int:
        return self.statuses[200]


class Buyer:
    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()

    def buy(self) -> int:
        """The status of the answer."""
        self._socket.sendall(self._request)
        answer = b""
        while not is_whole(answer):
            if not (data := self._socket.recv(1 << 16)):
                raise ConnectionError("The shop hung up.")
            answer += data
        return int(answer[9:12])

    def close(self) -> None:
        self._socket.close()


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = LENGTH.search(head + b"\r\n")
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def buy(port: int, path: str, buyers: int, seconds: float) -> Answers:
    """*buyers* buy for so many *seconds*, each again when it is answered."""
    began: list[float] = []

    def dues() -> Iterator[float]:
        while (now := time.monotonic()) < began[0] + seconds:
            yield now

    return answered(port, path, buyers, began, dues)


def arrive(port: int, path: str, rate: float, seconds: float, most: int, seed: int = 0) -> Answers:
    """For so many *seconds* buyers come, *rate* a second, however long those before them wait.

    They come at random, at the same moments for the same *seed*. One that finds *most* waiting for their
    answers has to wait until it can ask, and this counts as its wait.
    """
    began: list[float] = []
    chance, mutex = random.Random(seed), threading.Lock()
    moments = iter(
        list(
            itertools.takewhile(
                lambda moment: moment < seconds,
                itertools.accumulate(chance.expovariate(rate) for _ in itertools.count()),
            )
        )
    )

    def dues() -> Iterator[float]:
        while True:
            with mutex:
                moment = next(moments, None)
            if moment is None:
                return
            due = began[0] + moment
            time.sleep(max(0.0, due - time.monotonic()))
            yield due

    return answered(port, path, most, began, dues)


def answered(
    port: int, path: str, buyers: int, began: list[float], dues: Callable[[], Iterator[float]]
) -> Answers:
    """What *buyers* are answered. *dues* gives each the moments from which it waits; *began* is told when."""
    answers, mutex = Answers(), threading.Lock()
    ready = threading.Barrier(buyers, lambda: began.append(time.monotonic()))

    def come() -> None:
        buyer, times, told = Buyer(port, path), list[float](), Counter[int]()
        ready.wait(PATIENCE)
        for due in dues():
            told[buyer.buy()] += 1
            times.append(time.monotonic() - due)
        buyer.close()
        with mutex:
            answers.times.extend(times)
            answers.statuses.update(told)

    together([come] * buyers)
    answers.times.sort()
    answers.seconds = time.monotonic() - began[0]
    return answers
