"""A race in the threads of one process."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from threading import BrokenBarrierError

from distlock import clock
from distlock.errors import ConfigurationError
from distlock.testing import in_django, in_sqlalchemy
from distlock.testing.race_result import Call, raised, returned
from distlock.testing.shaking import is_the_sites, shaken
from distlock.web.stale_writes import Mode, in_race

#: The function that each thread calls.
Action = Callable[[], object]


def in_threads(
    action: Action,
    times: int,
    within: float,
    start: Callable[[float], object],
    stale_writes: Mode | None = None,
) -> tuple[list[Call], float]:
    """Call *action* in *times* threads at the same moment. Gives the calls, and the seconds that they took.

    *start*: the `wait` of a barrier, for these threads and the caller's. *within*: seconds in which they have
    to start, and then to end; raises TimeoutError. *stale_writes*: see `race`.
    """
    runs = [Run(action, start, within) for _ in range(times)]
    with in_race(stale_writes), in_django.errors_by_call(), in_sqlalchemy.refusing_memory():
        for one in runs:
            one.thread.start()
        try:
            start(within)
        except BrokenBarrierError:
            raise TimeoutError(
                f"Not all calls of the race could start within {within:g} seconds: the machine is busy, or "
                "one of its processes has died."
            ) from None
        deadline = clock.now() + within
        for one in runs:
            one.thread.join(max(0.0, deadline - clock.now()))
        if late := [one for one in runs if one.thread.is_alive()]:
            raise TimeoutError(_late(late, times, within))
    for one in runs:
        if one.trouble is not None:
            raise one.trouble
    runs.sort(key=lambda one: one.ended)
    return [one.call for one in runs], runs[-1].ended - min(one.began for one in runs)


class Run:
    """One thread of a race."""

    def __init__(self, action: Action, start: Callable[[float], object], within: float) -> None:
        self.thread = threading.Thread(target=self._run, name="distlock-race", daemon=True)
        self._action = action
        self._start = start
        self._within = within
        self.call = Call()
        self.began = self.ended = 0.0
        #: Why nothing can be learned from the race.
        self.trouble: Exception | None = None

    def _run(self) -> None:
        in_django.begin_call()
        try:
            self._start(self._within)
        except BrokenBarrierError:
            return
        self.began = clock.now()
        try:
            with shaken():
                answer = self._action()
                if inspect.iscoroutine(answer):
                    answer = asyncio.run(answer)
            self.call = returned(answer)
        except BaseException as error:
            self.call = raised(error)
        self.ended = clock.now()
        try:
            in_django.close_connections()
        except ConfigurationError as error:
            self.trouble = error


def _late(late: list[Run], times: int, within: float) -> str:
    """Return the message about calls that have not ended."""
    frames = sys._current_frames()
    places = sorted({_place(frames[ident]) for run in late if (ident := run.thread.ident) in frames})
    return (
        f"{len(late)} of {times} calls had not ended after {within:g} seconds. They stand at "
        f"{'; '.join(places)}. Raise within= if they only need longer."
    )


def _place(frame: object) -> str:
    """The innermost line of the site's own code, or else of any."""
    walked = list(traceback.walk_stack(frame))  # type: ignore[arg-type]
    frame, line = next((one for one in walked if is_the_sites(one[0])), walked[0])
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
