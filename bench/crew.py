"""Processes that use one kind of lock. They stay while others are measured, so that rounds can take turns."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any, TypeVar

from bench.locks import LOCKS, PATIENCE, Lock

Result = TypeVar("Result")
#: So long a process may take to end by itself, seconds.
GRACE = 5.0


class BenchError(Exception):
    """A round could not be measured; the message says what went wrong in which lock."""


@functools.cache
def context() -> ForkServerContext:
    """New processes without what this one has open, and quickly: all that they need is loaded once."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["bench.contest", "distlock", "redis", "kazoo.client"])
    return made


def end_with_parent() -> None:
    """A run that is killed can end its crews no more."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def serve(orders: Connection, kind: str, url: str) -> None:
    """A process of a crew: it does what it is told, and says what came of it."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    # Where connections are cut on purpose, it is no news.
    logging.getLogger("distlock").setLevel(logging.ERROR)
    try:
        lock = LOCKS[kind](url)
        with lock("warm"):
            pass
        orders.send(None)
        while (task := orders.recv()) is not None:
            orders.send(task(lock))
    except ModuleNotFoundError as error:
        orders.send(BenchError(f"{kind}: {error}. Run: pip install --group bench"))
    except EOFError:
        return  # The run was killed.
    except BaseException:
        orders.send(BenchError(f"{kind}: {traceback.format_exc()}"))


class Crew:
    """*size* processes, each with a client of its own of the kind of lock that is called *kind*."""

    #: Of a contest that doesn't count, seconds: connections are made, scripts loaded.
    warm_up = 0.1

    def __init__(self, size: int, kind: str, url: str) -> None:
        self.kind = kind
        self._members: list[tuple[Any, Connection]] = []
        for _ in range(size):
            here, there = context().Pipe()
            process = context().Process(target=serve, args=(there, kind, url), daemon=True)
            process.start()
            there.close()
            self._members.append((process, here))
        for _, orders in self._members:
            self._answer(orders)

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._members]

    def do(self, tasks: Sequence[Callable[[Lock], Result]]) -> list[Result]:
        """Have each do its task, all at the same time. Raises `BenchError`."""
        busy = [orders for (_, orders), _ in zip(self._members, tasks, strict=False)]
        for orders, task in zip(busy, tasks, strict=True):
            orders.send(task)
        return [self._answer(orders) for orders in busy]

    def _answer(self, orders: Connection) -> Any:
        if not orders.poll(4 * PATIENCE):
            raise BenchError(f"{self.kind}: a process says nothing any more.")
        answer = orders.recv()
        if isinstance(answer, BenchError):
            raise answer
        return answer

    def end(self) -> None:
        """Those that are still busy, because the run is stopped, are not waited for."""
        for _, orders in self._members:
            # One that failed has gone already.
            with suppress(OSError):
                orders.send(None)
        deadline = time.monotonic() + GRACE
        for process, _ in self._members:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
