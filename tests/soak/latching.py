"""The calls of a soak's latches: they are made, counted, looked at, waited for, deleted and made anew."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import distlock
from tests.soak.attempts import Step, Steps, pause
from tests.soak.notes import LATCH_TTL

if TYPE_CHECKING:
    from tests.soak.worker import Worker

#: The count of a latch, and its parts, of which there are more. A few callers believe in another count.
COUNT, OTHER_COUNT, PARTS = 4, 3, 6
#: For how many seconds the callers use one latch.
ROUND = 2.0
#: What is called how often.
CALLS = {"make": 30, "count": 40, "wait": 20, "look": 15, "delete": 6}


def latch_steps(worker: Worker, caller: str, choices: random.Random) -> Steps:
    """Call the latch of these seconds until the end of the soak."""
    while not worker.over.is_set():
        yield from _call(worker, caller, choices)
        yield pause(choices.random() * 0.1)


def _call(worker: Worker, caller: str, choices: random.Random) -> Steps:
    name = f"latch {int(time.monotonic() / ROUND)}"
    what = choices.choices(list(CALLS), list(CALLS.values()))[0]
    with_count = worker.locks.latch(name, choices.choice((COUNT,) * 9 + (OTHER_COUNT,)), ttl=LATCH_TTL)
    without = worker.locks.latch(name)
    part = choices.choice((None, *(f"part {number}" for number in range(PARTS))))
    by, seconds = choices.choice((1, 1, 2)), choices.choice((0.0, 0.2, 0.5, ROUND))
    about: dict[str, Any] = {"id": f"{worker.number()}", "caller": caller, "name": name, "what": what}
    if what == "make":
        about["total"] = with_count.total
        step = Step(with_count.make, with_count.amake)
    elif what == "count":
        about |= {"by": by, "part": part}
        step = Step(lambda: without.count_down(by, part), lambda: without.acount_down(by, part))
    elif what == "wait":
        step = Step(lambda: without.wait(seconds), lambda: without.await_(seconds))
    elif what == "look":
        step = Step(without.count, without.acount)
    else:
        step = Step(without.delete, without.adelete)
    worker.notes.note("calls", **about)
    try:
        answer = yield step
    except distlock.LatchNotFound:
        answer = "not found"
    except distlock.ConfigurationError:
        answer = "other count"
    except (distlock.BackendUnavailable, asyncio.CancelledError):
        return  # Nobody knows whether the call has changed the latch.
    worker.notes.note("answered", id=about["id"], answer=answer)
