"""Buyers of a shop, each a thread with a connection of its own; bounded in number and time."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Longer than any time-out of a lock here, seconds.
PATIENCE = 90.0
#: The header in which the server says how long a thread of it worked on an answer, seconds.
INSIDE = "X-Bench-Inside"


@dataclass(frozen=True, slots=True)
class Answer:
    #: When it was asked for, seconds since all began.
    at: float
    seconds: float
    status: int
    code: str | None
    #: Of *seconds*, what a thread of the server was busy with it.
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


class Buyer:
    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._path = path

    def buy(self, began: float) -> Answer:
        asked = time.monotonic()
        self._connection.request("POST", self._path, headers={"Accept": "application/json"})
        response = self._connection.getresponse()
        body = response.read()
        seconds = time.monotonic() - asked
        problem = response.headers.get_content_type() == "application/problem+json"
        code = json.loads(body)["code"] if problem else None
        inside = float(response.headers.get(INSIDE, 0.0))
        return Answer(asked - began, seconds, response.status, code, inside)

    def close(self) -> None:
        self._connection.close()


def buy(
    port: int,
    path: str,
    buyers: int,
    *,
    purchases: int | None = None,
    seconds: float | None = None,
    again_after: float = 0.0,
) -> list[Answer]:
    """What *buyers*, which all begin at once, are answered to their POST requests.

    Each buys *purchases* times, or again and again for so many *seconds*; after a refusal it comes again
    about *again_after* seconds later: people don't keep in step, and 50 answers to one instant are no
    measure of one.
    """
    answers: list[Answer] = []
    began = [0.0]

    def begin() -> None:
        began[0] = time.monotonic()

    ready = threading.Barrier(buyers, begin)

    def come() -> None:
        buyer, bought = Buyer(port, path), 0
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
    """Run *tasks*, each in a thread. Raises what the first of them raised."""
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


def percentile(answers: Sequence[Answer], share: float) -> float:
    """The seconds within which that *share* of *answers* came; 0 where there are none."""
    return at(sorted(answer.seconds for answer in answers), share)


def at(ordered: Sequence[float], share: float) -> float:
    """What that *share* of *ordered* does not exceed; 0 where there is nothing."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
