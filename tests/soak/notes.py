"""What the processes of a soak note, a line of JSON for each event, and how the judge reads it back.

A line is written by one `write` to a file that is open for appending, so the lines of a process that is
killed are complete. All times are of the monotonic clock, which the processes of one machine share.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["lock", "rlock", "read", "write", "permit"]


class Notebook:
    """The file in which one process notes its events."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"{os.getpid()}.notes"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, **about: object) -> None:
        self.note_at(time.monotonic(), event, **about)

    def note_at(self, moment: float, event: str, **about: object) -> None:
        os.write(self._file, (json.dumps({"at": moment, "event": event, **about}) + "\n").encode())


@dataclass(slots=True)
class Attempt:
    """One attempt to take a lock, and what became of it."""

    process: int
    caller: str
    name: str
    kind: Kind
    asked: float
    permits: int = 1
    limit: int = 0
    fence: tuple[int, int] | None = None
    granted: float | None = None
    #: The last moment at which the holder's `lost` was False.
    sure: float = 0.0
    #: When the caller began to release it.
    releasing: float | None = None
    #: Whether it was lost before the release.
    lost: bool = False
    #: When the release had returned.
    released: float | None = None
    #: When the attempt ended without a grant, and how: "timeout" or the name of the error.
    refused: float | None = None
    how: str = ""


@dataclass(slots=True)
class LatchCall:
    """A count of a latch, from the moment at which it was asked for, or a wait that has passed."""

    caller: str
    name: str
    at: float
    #: The part that is counted; None: the caller has waited, and the latch was open.
    part: str | None
    #: How many parts open the latch.
    total: int


@dataclass(slots=True)
class Fault:
    """Something that was done to a process or to the lock service."""

    what: str
    began: float
    ended: float
    #: The process that it struck; None: it struck the lock service.
    process: int | None = None
    #: Whether locks that were held before its end may be lost, so that the pages admit an overlap.
    forgets: bool = False


@dataclass(slots=True)
class History:
    """All that was noted."""

    attempts: list[Attempt] = field(default_factory=list)
    latches: list[LatchCall] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    #: What each process that ended in order had left: threads, descriptors.
    left: dict[int, list[str]] = field(default_factory=dict)
    #: Errors that no caller should see, with the process.
    errors: list[str] = field(default_factory=list)


def read(directory: Path, faults: list[Fault]) -> History:
    """Return the history that the notebooks in *directory* tell."""
    history = History(faults=list(faults))
    for path in sorted(directory.glob("*.notes")):
        process, open_attempts, at = int(path.stem), dict[str, Attempt](), 0.0
        for line in _lines(path):
            at = line["at"]
            _apply(history, process, open_attempts, line)
        for fault in history.faults:
            if fault.process == process and fault.ended == math.inf:
                # The process was killed before the fault was over.
                fault.ended = at
    history.attempts.sort(key=lambda attempt: attempt.asked)
    history.faults.sort(key=lambda fault: fault.began)
    return history


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def _apply(history: History, process: int, attempts: dict[str, Attempt], line: dict[str, Any]) -> None:
    event, at = line["event"], line["at"]
    if event == "asked":
        attempt = attempts[line["id"]] = Attempt(
            process, line["caller"], line["name"], line["kind"], at, line["permits"], line["limit"]
        )
        history.attempts.append(attempt)
    elif event in {"counts", "passed"}:
        history.latches.append(LatchCall(line["caller"], line["name"], at, line["part"], line["total"]))
    elif event == "left":
        history.left[process] = line["what"]
    elif event == "struck":
        history.faults.append(Fault(line["what"], at, math.inf, process, line["forgets"]))
    elif event == "recovered":
        # *more*: for how many seconds after it others may wait in vain.
        same = [fault for fault in history.faults if fault.process == process and fault.ended == math.inf]
        next(fault for fault in same if fault.what == line["what"]).ended = at + line["more"]
    elif event == "error":
        history.errors.append(f"process {process}: {line['what']}")
    else:
        attempt = attempts[line["id"]]
        if event == "granted":
            attempt.granted = attempt.sure = at
            attempt.lost = line["lost"]
            attempt.fence = tuple(line["fence"]) if line["fence"] else None
        elif event == "sure":
            attempt.sure = at
        elif event == "releasing":
            attempt.releasing, attempt.lost = at, line["lost"]
            if not attempt.lost:
                attempt.sure = at
        elif event == "released":
            attempt.released = at
        else:
            assert event == "refused"
            attempt.refused, attempt.how = at, line["how"]
