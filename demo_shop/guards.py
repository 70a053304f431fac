"""What stands around a purchase, chosen by configuration: nothing, a process lock or the distributed lock."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

View = Callable[..., Any]
Decorator = Callable[[View], View]


def guarded(guard: str, distributed: Decorator) -> Decorator:
    """The decorator that *guard* names; *distributed* is the framework's own ``@distributed_lock(...)``."""
    choice: dict[str, Decorator] = {
        "none": lambda view: view,
        "process": process_lock,
        "distributed": distributed,
    }

    def decorate(view: View) -> View:
        return timed(view, choice[guard])

    return decorate


def process_lock(view: View) -> View:
    """One real lock for each product, shared by the threads of this process, and by nobody else."""
    making = threading.Lock()
    locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    @functools.wraps(view)
    def locked(*args: Any, **kwargs: Any) -> Any:
        # Two threads that make the first lock of a product at once would each get their own.
        with making:
            lock = locks[kwargs["id"]]
        with lock:
            return view(*args, **kwargs)

    return locked


def timed(view: View, guard: Decorator) -> View:
    """*view* inside *guard*. ``Server-Timing`` tells how long a buyer waited, and the view worked."""
    clock = threading.local()

    @functools.wraps(view)
    def work(*args: Any, **kwargs: Any) -> Any:
        clock.entered = perf_counter()
        try:
            return view(*args, **kwargs)
        finally:
            clock.left = perf_counter()

    inside = guard(work)

    @functools.wraps(inside)
    def answer(*args: Any, **kwargs: Any) -> Any:
        asked = clock.entered = clock.left = perf_counter()
        response = inside(*args, **kwargs)
        wait, worked = clock.entered - asked, clock.left - clock.entered
        response.headers["Server-Timing"] = f"wait;dur={wait * 1000:.2f}, work;dur={worked * 1000:.2f}"
        return response

    return answer
