"""A call as the exchanges with the server that it is made of: a thread waits for them, or an event loop does.

One implementation serves both. It says what it waits for, and a driver sees to that: `run` in the caller's
thread, `distlock.backends.zookeeper.awaiting` for an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from distlock.backends.zookeeper.answer import Answer

T = TypeVar("T")


class Await(NamedTuple):
    """Go on when *answer* is there, and after *seconds* at the latest. Whether it is comes back."""

    answer: Answer
    seconds: float


class Block(NamedTuple):
    """Wait in *function*, which only a thread can."""

    function: Callable[[], object]


Exchanges = Generator[Await | Block, bool, T]


def run(exchanges: Exchanges[T]) -> T:
    """Carry them out in this thread."""
    try:
        step = next(exchanges)
        while True:
            try:
                said = step.answer.wait(step.seconds) if isinstance(step, Await) else bool(step.function())
            except BaseException as error:  # the call notes what it does not know, then it is raised again
                step = exchanges.throw(error)
            else:
                step = exchanges.send(said)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        # After an interrupt between two steps.
        exchanges.close()
