"""One server of a deploy: it counts under the locks of its step.

Run as ``python -m tests.docs.changing_over STEP REDIS COUNTS``. It says ``ready``, begins at the next line
of its input, and says ``done``. STEP is ``old``, ``both`` or ``new``.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import redis

import distlock

THREADS = 4


def main() -> None:
    step, url, counts = sys.argv[1:]
    client = redis.Redis.from_url(url)
    locks = distlock.connect(url, prefix="shop", timeout=60)

    def old() -> AbstractContextManager[Any]:
        return client.lock("product_1", timeout=60, sleep=0.001)

    def new() -> AbstractContextManager[Any]:
        return locks.lock("product_1")

    taken = {"old": [old], "both": [new, old], "new": [new]}[step]

    def count() -> None:
        for _ in range(int(counts)):
            with ExitStack() as held:
                for lock in taken:
                    held.enter_context(lock())
                seen = int(client.get("counter") or 0)  # type: ignore[arg-type]
                client.set("counter", seen + 1)

    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=count) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locks.close()
    client.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
