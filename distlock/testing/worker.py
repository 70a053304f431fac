"""A process that does with locks as it is told, a line of JSON at a time: see `distlock.testing.process`."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import distlock
from distlock import clock
from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.testing.fixtures import engine_of
from distlock.testing.latch_waiting import wait_for_waiters


class Worker:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.locks = distlock.connect(url, **options)
        self.grants: list[Any] = []

    def acquire(self, name: str, timeout: float) -> dict[str, Any] | None:
        grant = self.locks.lock(name).acquire(timeout=timeout)
        if grant is None:
            return None
        self.grants.append(grant)
        return {"fence": list(grant.fence), "at": clock.now()}

    def read(self, name: str, timeout: float) -> bool:
        return self._keep(self.locks.read_lock(name).acquire(timeout=timeout))

    def permits(self, name: str, limit: int, permits: int, timeout: float) -> bool:
        return self._keep(self.locks.semaphore(name, limit=limit, permits=permits).acquire(timeout=timeout))

    def count_down(self, name: str) -> int:
        return self.locks.latch(name).count_down()

    def wait_for_latch(self, name: str, timeout: float) -> None:
        """Begin to wait for a latch. Returns when it was looked for."""
        ThreadPoolExecutor(1).submit(self.locks.latch(name).wait, timeout)
        wait_for_waiters(self.locks, 1)

    def _keep(self, grant: Any) -> bool:
        if grant is not None:
            self.grants.append(grant)
        return grant is not None

    def wait(self, name: str, timeout: float) -> None:
        """Begin to acquire. Returns when the lock service has said to wait, and so who is before it."""
        backend, told = engine_of(self.locks).backend, threading.Event()
        honest = backend.request

        def telling(request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
            answer = honest(request, deadline)
            if isinstance(answer, Queued):
                told.set()
            return answer

        backend.request = telling  # type: ignore[method-assign]
        self.waiting = ThreadPoolExecutor(1).submit(self.acquire, name, timeout)
        told.wait(timeout)

    def granted(self) -> dict[str, Any] | None:
        """Return the outcome of `wait`."""
        return self.waiting.result()

    def release(self) -> float:
        at = clock.now()
        self.grants.pop().release()
        return at

    def state(self) -> dict[str, Any]:
        grant = self.grants[-1]
        return {"lost": grant.lost, "released": grant.released}

    def hammer(self, name: str, rounds: int, path: str) -> list[dict[str, Any]]:
        """Add *rounds* to the number in the file at *path*, as a shop deducts stock: read, then write."""
        records = []
        lock = self.locks.lock(name, timeout=60)
        for _ in range(rounds):
            asked = clock.now()
            with lock as grant:
                granted = clock.now()
                with open(path, encoding="ascii") as file:
                    number = int(file.read())
                with open(path, "w", encoding="ascii") as file:
                    file.write(str(number + 1))
                released = clock.now()
            records.append(
                {"asked": asked, "granted": granted, "released": released, "fence": list(grant.fence)}
            )
        return records

    def fork(self, name: str) -> dict[str, Any]:
        """Fork while holding *name*. The child says what it sees, then lives on until it is killed."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            grant = self.grants[-1]
            seen = {"lost": grant.lost, "took": self.locks.lock(name).acquire(blocking=False) is not None}
            grant.release()
            os.write(writer, json.dumps(seen).encode())
            os.close(writer)
            while True:
                signal.pause()
        os.close(writer)
        with open(reader, encoding="utf-8") as file:
            seen = json.loads(file.read())
        return {"child": pid, **seen}

    def close(self) -> None:
        self.locks.close()


def main() -> None:
    worker = Worker(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(worker, command)(*arguments)}
        except distlock.LockError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
