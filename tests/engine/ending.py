"""A process that ends with a lock held: ``python -m tests.engine.ending URL NAME HOW``."""

from __future__ import annotations

import sys
import threading

import distlock

#: Longer than a test waits: a caller that gets the lock before did not wait for the lease to end.
TTL = 90.0


def main(url: str, name: str, how: str) -> None:
    locks = distlock.connect(
        url, prefix="ending", ttl=TTL, on_lost=lambda grant, why: print(f"lost {grant.lost}", flush=True)
    )
    held = threading.Event()

    def hold() -> None:
        global grant
        try:
            grant = locks.lock(name).acquire(timeout=60)
            print("held", flush=True)
        finally:
            held.set()
        if how == "daemon":
            threading.Event().wait()
        if how == "thread":
            sys.stdin.readline()

    if how == "main":
        hold()
    else:
        threading.Thread(target=hold, daemon=how == "daemon").start()
        held.wait()
    if how == "main":
        sys.stdin.readline()


grant: distlock.Grant | None = None

if __name__ == "__main__":
    main(*sys.argv[1:])
