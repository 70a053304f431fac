"""A process that runs out of something in the middle of its work; prints one line for each step.

starved.py URL descriptors|threads sync|async
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from typing import Any

import distlock

url, what, how = sys.argv[1:]
locks = distlock.connect(url, timeout=20)
other = distlock.connect(url, timeout=20)


def acquire(name: str, timeout: float) -> Any:
    if how == "sync":
        return locks.lock(name).acquire(timeout=timeout)
    return loop.run_until_complete(asynchronously(name, timeout))


async def asynchronously(name: str, timeout: float) -> Any:
    return await locks.lock(name).aacquire(timeout=timeout)


def tell(name: str, timeout: float) -> None:
    try:
        acquire(name, timeout)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("granted", flush=True)


def starve() -> Any:
    if what == "threads":
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        threading.Thread.start = refuse  # type: ignore[method-assign]
        return lambda: setattr(threading.Thread, "start", start)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass

    def heal() -> None:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return heal


# It has descriptors of its own.
loop = asyncio.new_event_loop()
held = other.lock("held").acquire()
assert held is not None
heal = starve()
# Nothing is there yet: a connection, and, for a caller that has to wait, a thread that listens.
if what == "descriptors":
    tell("free", 20)
tell("held", 20)
heal()
held.release()
tell("held", 20)
tell("free", 20)
loop.close()
locks.close()
other.close()
