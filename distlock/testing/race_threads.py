"""A race in the threads of one process, and its result.

Most calls of a site end before the interpreter switches to another thread, so they would never overlap.
Therefore each thread lets others run before each line of the site's own code.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import sysconfig
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import BrokenBarrierError
from types import FrameType
from typing import Any

from distlock import clock
from distlock.errors import ConfigurationError
from distlock.testing import race_frameworks
from distlock.web.stale_writes import Mode, in_race

#: The function that each thread calls.
Action = Callable[[], object]

#: A call lets other threads run before this many of its lines at most, so that loops end in time.
LINES = 500
#: A sleep of this many seconds lets other threads run.
MOMENT = 1e-6

#: Code in such files is not the site's. Their names begin with one of these: Python's own files, those of
#: distlock, and code without a file.
_OTHERS = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]), "<")
#: The names of files of installed packages contain one of these.
_INSTALLED = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True, slots=True)
class RaceCall:
    """One call of a race: what it returned or raised, and the outcome that it counts as."""

    outcome: Hashable = None
    answer: object = None
    error: BaseException | None = None

    def in_words(self) -> RaceCall:
        """Return this call with texts in place of objects that can't be sent to another process."""
        outcome = self.outcome if isinstance(self.outcome, int | str) else repr(self.outcome)
        if self.error is None:
            return RaceCall(outcome, repr(self.answer))
        return RaceCall(outcome, error=RuntimeError(repr(self.error)))


def returned(answer: object) -> RaceCall:
    """Return the `RaceCall` of a call that returned *answer*.

    The outcome is the status of *answer*. Without a status, it is *answer* itself, or the name of its class
    if *answer* has no ``__eq__`` of its own or can't be hashed.
    """
    for attribute in ("status_code", "status"):
        status = getattr(answer, attribute, None)
        # http.HTTPStatus is an int; the status of a Celery task is a str.
        if isinstance(status, int | str):
            return RaceCall(int(status) if isinstance(status, int) else status, answer)
    if answer is None or type(answer).__eq__ is not object.__eq__:
        with suppress(TypeError):
            hash(answer)
            return RaceCall(answer, answer)
    return RaceCall(type(answer).__name__, answer)


def raised(error: BaseException) -> RaceCall:
    """Return the `RaceCall` of a call that raised *error*. Its outcome is the name of the error's class."""
    return RaceCall(type(error).__name__, error=error)


class Race:
    """The result of `race`.

    *statuses* counts all calls, by the status of what they returned or by the name of the error's class. A
    returned object without a status is counted as itself, or by the name of its class if it can't be compared
    or hashed. *answers*: what the calls returned; *errors*: what they raised; both in the order in which the
    calls ended. *seconds*: from the first start to the last end.
    """

    def __init__(self, calls: Sequence[RaceCall], seconds: float) -> None:
        self.statuses: Counter[Hashable] = Counter(call.outcome for call in calls)
        self.answers = [call.answer for call in calls if call.error is None]
        self.errors = [call.error for call in calls if call.error is not None]
        self.seconds = seconds

    def __repr__(self) -> str:
        counted = ", ".join(
            f"{outcome!r}: {count}"
            for outcome, count in sorted(self.statuses.items(), key=lambda item: str(item[0]))
        )
        first = f"; first error: {self.errors[0]!r}" if self.errors else ""
        return f"<Race of {self.statuses.total()} calls in {self.seconds:.2g} s: {{{counted}}}{first}>"


def in_threads(
    action: Action,
    times: int,
    within: float,
    start: Callable[[float], object],
    stale_writes: Mode | None = None,
) -> tuple[list[RaceCall], float]:
    """Call *action* in *times* threads at the same moment. Return the calls, and the seconds that they took.

    *start*: the `wait` of a barrier that these threads and the calling one pass together. *within*: the
    seconds that the threads have to start, and then to end. *stale_writes*: see `race`. Raises TimeoutError;
    `ConfigurationError` for a database in memory; `StaleWrite`.
    """
    runs = [RaceThread(action, start, within) for _ in range(times)]
    with (
        in_race(stale_writes),
        race_frameworks.errors_by_call(),
        race_frameworks.refusing_sqlalchemy_memory(),
    ):
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


class RaceThread:
    """One thread of a race."""

    def __init__(self, action: Action, start: Callable[[float], object], within: float) -> None:
        self.thread = threading.Thread(target=self._run, name="distlock-race", daemon=True)
        self._action = action
        self._start = start
        self._within = within
        self.call = RaceCall()
        self.began = self.ended = 0.0
        #: An error that makes the result of the race worthless, so that `in_threads` raises it; or None.
        self.trouble: Exception | None = None

    def _run(self) -> None:
        race_frameworks.begin_call()
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
            race_frameworks.close_connections()
        except ConfigurationError as error:
            self.trouble = error


def _late(late: list[RaceThread], times: int, within: float) -> str:
    """Return the message about the threads *late*, whose calls have not ended."""
    frames = sys._current_frames()
    places = sorted({_place(frames[ident]) for run in late if (ident := run.thread.ident) in frames})
    return (
        f"{len(late)} of {times} calls had not ended after {within:g} seconds. They stand at "
        f"{'; '.join(places)}. Raise within= if they only need longer."
    )


def _place(frame: object) -> str:
    """Return the innermost line of the site's own code in the stack of *frame*, or else that of *frame*."""
    walked = list(traceback.walk_stack(frame))  # type: ignore[arg-type]
    frame, line = next((one for one in walked if is_the_sites(one[0])), walked[0])
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"


@contextmanager
def shaken() -> Iterator[None]:
    """Let other threads run before each line of the site's own code in the block.

    Do nothing in a thread that a debugger or a coverage tool traces: a thread can have only one tracer.
    """
    if sys.gettrace() is not None:
        yield
        return
    left = LINES

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "line" and left > 0:
            left -= 1
            time.sleep(MOMENT)
        return line

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        return line if left > 0 and is_the_sites(frame) else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)


def is_the_sites(frame: FrameType) -> bool:
    """Return whether *frame* runs code of the site: not of Python, distlock or an installed package."""
    file = frame.f_code.co_filename
    return not file.startswith(_OTHERS) and not any(folder in file for folder in _INSTALLED)
