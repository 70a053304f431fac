"""Buyers of a shop, each a thread with a connection: `JsonBuyer` returns details, `SocketBuyer` is cheap."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

#: A buyer waits at most this many seconds for an answer, which is longer than any timeout of a lock here.
PATIENCE = 90.0
#: The header with the seconds for which a thread of the server worked on an answer.
INSIDE = "X-Bench-Inside"
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PurchaseAnswer:
    """The answer to one POST request of a buyer."""

    #: When the request was sent, seconds since all buyers began.
    at: float
    #: Until the answer.
    seconds: float
    status: int
    code: str | None
    #: For how many of *seconds* a thread of the server worked on it.
    inside: float = 0.0

    @property
    def sold(self) -> bool:
        return self.status == 200

    @property
    def refused(self) -> bool:
        return self.code == "lock_queue_full"

    @property
    def in_vain(self) -> bool:
        return self.code == "lock_contended"


class JsonBuyer:
    """A buyer with ``http.client``, which reads why a purchase was refused."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._path = path

    def buy(self, began: float) -> PurchaseAnswer:
        asked = time.monotonic()
        self._connection.request("POST", self._path, headers={"Accept": "application/json"})
        response = self._connection.getresponse()
        body = response.read()
        seconds = time.monotonic() - asked
        problem = response.headers.get_content_type() == "application/problem+json"
        code = json.loads(body)["code"] if problem else None
        inside = float(response.headers.get(INSIDE, 0.0))
        return PurchaseAnswer(asked - began, seconds, response.status, code, inside)

    def close(self) -> None:
        self._connection.close()


def buy_with_answers(
    port: int,
    path: str,
    buyers: int,
    *,
    purchases: int | None = None,
    seconds: float | None = None,
    again_after: float = 0.0,
) -> list[PurchaseAnswer]:
    """Let *buyers* begin at once, and return the answers to all their POST requests.

    Each buys *purchases* times, or again and again for *seconds*. After a refusal it waits about
    *again_after* seconds, with random differences, as between people.
    """
    answers: list[PurchaseAnswer] = []
    began = [0.0]

    def begin() -> None:
        began[0] = time.monotonic()

    ready = threading.Barrier(buyers, begin)

    def come() -> None:
        buyer, bought = JsonBuyer(port, path), 0
        ready.wait(PATIENCE)
        while bought != purchases and (seconds is None or time.monotonic() - began[0] < seconds):
            answers.append(answer := buyer.buy(began[0]))
            bought += 1
            if answer.refused:
                time.sleep(again_after * random.uniform(0.5, 1.5))
        buyer.close()

    together([come] * buyers)
    return answers


def together(tasks: Sequence[Callable[[], None]]) -> None:
    """Run each of *tasks* in a thread. Raise their first exception."""
    failures: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def percentile(answers: Sequence[PurchaseAnswer], share: float) -> float:
    """Return the seconds within which *share* of *answers* came; 0 without answers."""
    return at(sorted(answer.seconds for answer in answers), share)


def at(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of *share* in *ordered*; 0 if it is empty."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(slots=True)
class LoadResult:
    """The answers to all buyers of a load."""

    #: The seconds of all waits, sorted.
    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    #: Seconds from the first request to the last answer.
    seconds: float = 0.0

    @property
    def sold(self) -> int:
        return self.statuses[200]


class SocketBuyer:
    """A buyer with a bare socket, which costs little itself."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()

    def buy(self) -> int:
        """Buy once, and return the status of the answer."""
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


def closed_load(port: int, path: str, buyers: int, seconds: float) -> LoadResult:
    """Let *buyers* buy for *seconds*, each again as soon as it has its answer."""
    began: list[float] = []

    def dues() -> Iterator[float]:
        while (now := time.monotonic()) < began[0] + seconds:
            yield now

    return run_load(port, path, buyers, began, dues)


def open_load(port: int, path: str, rate: float, seconds: float, most: int, seed: int = 0) -> LoadResult:
    """Let *rate* buyers come per second, for *seconds*, however long earlier ones wait.

    They come at random moments, which are the same for the same *seed*. A buyer that comes while *most*
    others wait for their answers sends its request later, and the delay counts as its wait.
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

    return run_load(port, path, most, began, dues)


def run_load(
    port: int, path: str, buyers: int, began: list[float], dues: Callable[[], Iterator[float]]
) -> LoadResult:
    """Run a load, and return its answers.

    *dues* yields the moments from which a buyer waits. *began* receives the moment at which all begin.
    """
    answers, mutex = LoadResult(), threading.Lock()
    ready = threading.Barrier(buyers, lambda: began.append(time.monotonic()))

    def come() -> None:
        buyer, times, told = SocketBuyer(port, path), list[float](), Counter[int]()
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
