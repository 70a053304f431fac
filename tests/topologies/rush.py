"""Two instances of a shop sell out, while something is done to what keeps their locks."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

from distlock import clock
from tests.fence.instance import Order
from tests.fence.instances import Instance
from tests.redis_server import eventually


class Rush:
    """*instances* sell until nothing is left. Threads hear what they say, and when each sale was."""

    def __init__(self, instances: list[Instance]) -> None:
        self.sold: list[float] = []
        #: What all requests were answered so far.
        self.answers: list[str] = []
        self._pool = ThreadPoolExecutor(len(instances))
        for instance in instances:
            instance.tell("rush")
        self._heard = [self._pool.submit(self._hear, instance) for instance in instances]

    def _hear(self, instance: Instance) -> None:
        for answer in iter(instance.says, "done"):
            self.answers.append(answer)
            if answer == "answered 200":
                self.sold.append(clock.now())

    def wait_for(self, sold: int) -> None:
        eventually(lambda: len(self.sold) >= sold, f"{sold} are sold")

    def end(self) -> list[str]:
        for heard in self._heard:
            heard.result()
        self._pool.shutdown()
        return self.answers

    def longest_gap(self, since: float) -> float:
        """Seconds in which nobody sold anything, after *since*."""
        moments = [since, *(moment for moment in sorted(self.sold) if moment > since)]
        return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


def two_instances(database: str, url: str, fence: bool, lock: bool = True) -> list[Order]:
    return [
        Order(face, database, url, face[0], fence, ttl=1.0, timeout=10.0, lock=lock)
        for face in ("django", "flask")
    ]
