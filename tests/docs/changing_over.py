"""One server of a deploy: it counts under the locks of its step.

Run as ``python -m tests.docs.changing_over STEP REDIS FOLDER COUNTS``. It says ``ready``, begins at the next
line of its input, and says ``done``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import redis
from flask import Flask

import distlock
from flask_distlock import DistLock, distributed_lock

THREADS = 4

Do = Callable[[], object]


class Server:
    """A server of the shop at *step*. Its `count` adds one to a counter in Redis."""

    def __init__(self, step: str, url: str, folder: Path) -> None:
        self.client = redis.Redis.from_url(url)
        self.locks = distlock.connect(url, prefix="shop", timeout=60)
        self.files = distlock.connect(f"file://{folder}/locks", prefix="shop", timeout=60)
        self.app = Flask(__name__)
        #: The lock services of the decorators, under a prefix of their own.
        self.app.config["DISTLOCK"] = {
            "default": {"LOCATION": url, "PREFIX": "site", "TIMEOUT": 60},
            "new": {"LOCATION": f"file://{folder}/locks", "PREFIX": "site", "TIMEOUT": 60},
        }
        self.of_app = DistLock(self.app)
        self.app.add_url_rule("/", "count", getattr(self, f"view_{step}", self.add), methods=["POST"])
        self.count: Do = getattr(self, step, self.post)

    def add(self) -> str:
        seen = int(self.client.get("counter") or 0)  # type: ignore[arg-type]
        self.client.set("counter", seen + 1)
        return "counted"

    def post(self) -> None:
        assert self.app.test_client().post("/").text == "counted"

    def close(self) -> None:
        with self.app.app_context():
            self.of_app.close()
        for one in (self.locks, self.files, self.client):
            one.close()

    # From a lock of redis-py to distlock.

    def old(self) -> None:
        with self.client.lock("product_1", timeout=60, sleep=0.001):
            self.add()

    def both(self) -> None:
        with self.locks.lock("product_1"):
            self.old()

    def new(self) -> None:
        with self.locks.lock("product_1"):
            self.add()

    # From distlock on Redis to distlock on files: with multi_lock, and with two decorators.

    def on_redis(self) -> None:
        self.new()

    def on_two(self) -> None:
        with distlock.multi_lock(self.locks.lock("product_1"), self.files.lock("product_1")):
            self.add()

    def on_files(self) -> None:
        with self.files.lock("product_1"):
            self.add()

    @property
    def view_first(self) -> Do:
        return distributed_lock("product_1")(self.add)

    @property
    def view_stacked(self) -> Do:
        return distributed_lock("product_1")(distributed_lock("product_1", alias="new")(self.add))

    @property
    def view_second(self) -> Do:
        return distributed_lock("product_1", alias="new")(self.add)


def main() -> None:
    step, url, folder, counts = sys.argv[1:]
    server = Server(step, url, Path(folder))

    def count() -> None:
        for _ in range(int(counts)):
            server.count()

    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=count) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
