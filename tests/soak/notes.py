"""What the processes of a soak note, a line of JSON for each event, and how the judge reads it back.

A line is written by one `write` to a file that is open for appending, so the lines of a process that is
killed are complete. All times are of the monotonic clock, which the processes of one machine share.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal[
    "lock", "push", "rlock", "read", "write", "permit", "cart", "multi", "second", "asked", "crowd"
]
#: The names of the locks that are in a directory, whatever the lock service is, and the kinds that take them.
NAMES_IN_FILES = ("second 0", "second 1")
KINDS_IN_FILES: frozenset[Kind] = frozenset({"second", "multi"})
#: What a call of a latch returned, or the word for its error; None: nobody knows whether it was carried out.
Answer = int | bool | str | None
#: What a process notes while it begins. Calls may fail then, but it keeps no lock.
BEGINS = "beginning"
#: How long a latch lives after it was made or counted, seconds.
LATCH_TTL = 20.0


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
    #: Whether it was lost already at `granted`: the process may have stood still before it could note that.
    lost_at_once: bool = False
    #: When the release had returned.
    released: float | None = None
    #: When the attempt ended without a grant, and how: "timeout" or the name of the error.
    refused: float | None = None
    how: str = ""
    #: The text of the error, or the state of the lock after a long wait in vain.
    why: str = ""
    #: How many attempts of the same caller, on the same name, are around it.
    depth: int = 0
    #: Whether other names are taken with it: all of them, or none.
    of_several: bool = False
    #: When the caller began to turn its write lock into a read lock.
    downgraded: float | None = None
    #: When the holder saw that its release was requested.
    wanted: float | None = None

    @property
    def answered(self) -> float:
        """When it was granted or refused; ``inf``: neither is known."""
        answered = self.granted if self.granted is not None else self.refused
        return math.inf if answered is None else answered


@dataclass(slots=True)
class LatchCall:
    """A call of a latch: to make it, count it, wait for it, look at it or delete it."""

    process: int
    caller: str
    name: str
    what: str
    began: float
    #: ``inf``: the call has not returned.
    ended: float = math.inf
    answer: Answer = None
    #: To make it: its count.
    total: int = 0
    #: To count it: by how much, and the part that was named.
    by: int = 1
    part: str | None = None


@dataclass(slots=True)
class Request:
    """A request to the holder of *name* to release it."""

    process: int
    name: str
    began: float
    #: ``inf``: nobody knows when it reached the holder.
    ended: float = math.inf
    #: Whether anybody held the name; None: unknown.
    answer: bool | None = None


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
    #: Whether others may pass a waiter that it struck, because the waiter does not hear its turn.
    skips: bool = False


@dataclass(slots=True)
class Leak:
    """Something that the closed clients of a process have left in it: threads, descriptors."""

    process: int
    what: str
    at: float


@dataclass(slots=True)
class History:
    """All that was noted."""

    attempts: list[Attempt] = field(default_factory=list)
    latches: list[LatchCall] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    #: Errors that no caller should see, with the process.
    errors: list[str] = field(default_factory=list)
    #: What was left on the lock services when all processes had ended and all leases were over.
    leftovers: list[str] = field(default_factory=list)


def read(directory: Path, faults: list[Fault], until: float = math.inf) -> History:
    """Return the history that the notebooks in *directory* tell. *until*: now, if processes are writing."""
    history = History(faults=list(faults))
    for path in sorted(directory.glob("*.notes")):
        _Reader(history, int(path.stem), until).read(path)
    history.attempts.sort(key=lambda attempt: attempt.asked)
    history.latches.sort(key=lambda call: call.began)
    history.faults.sort(key=lambda fault: fault.began)
    return history


class _Reader:
    """What is open in the notebook of one process while it is read."""

    def __init__(self, history: History, process: int, until: float) -> None:
        self._history, self._process, self._until = history, process, until
        #: The attempts of each id: one for each name.
        self._attempts: dict[str, list[Attempt]] = {}
        self._calls: dict[str, LatchCall] = {}
        self._requests: dict[str, Request] = {}

    def read(self, path: Path) -> None:
        at = 0.0
        # The last line may be under way.
        for line in path.read_text().rpartition("\n")[0].splitlines():
            about = json.loads(line)
            if about["at"] <= self._until:
                at = about["at"]
                self._apply(about["event"], at, about)
        for fault in self._history.faults:
            if fault.process == self._process and fault.ended == math.inf:
                # The process was killed before the fault was over.
                fault.ended = at

    def _apply(self, event: str, at: float, line: dict[str, Any]) -> None:
        history, process = self._history, self._process
        if event == "asked":
            self._attempts[line["id"]] = [self._attempt(name, at, line) for name in line["names"]]
            history.attempts += self._attempts[line["id"]]
        elif event == "calls":
            more = {word: line[word] for word in ("total", "by", "part") if word in line}
            call = LatchCall(process, line["caller"], line["name"], line["what"], at, **more)
            self._calls[line["id"]] = call
            history.latches.append(call)
        elif event == "answered":
            self._calls[line["id"]].ended, self._calls[line["id"]].answer = at, line["answer"]
        elif event == "requests":
            self._requests[line["id"]] = Request(process, line["name"], at)
            history.requests.append(self._requests[line["id"]])
        elif event == "requested":
            self._requests[line["id"]].ended, self._requests[line["id"]].answer = at, line["answer"]
        elif event == "left":
            history.leaks += [Leak(process, what, at) for what in line["what"]]
        elif event == "struck":
            history.faults.append(Fault(line["what"], at, math.inf, process, line["forgets"]))
        elif event == "recovered":
            # *more*: for how many seconds after it others may wait in vain.
            same = [fault for fault in history.faults if fault.process == process and fault.ended == math.inf]
            next(fault for fault in same if fault.what == line["what"]).ended = at + line["more"]
        elif event == "error":
            history.errors.append(f"process {process}: {line['what']}")
        else:
            for attempt in self._attempts[line["id"]]:
                _note(attempt, event, at, line)

    def _attempt(self, name: str, at: float, line: dict[str, Any]) -> Attempt:
        return Attempt(
            self._process,
            line["caller"],
            name,
            line["kind"],
            at,
            line["permits"],
            line["limit"],
            depth=line["depth"],
            of_several=len(line["names"]) > 1,
        )


def _note(attempt: Attempt, event: str, at: float, line: dict[str, Any]) -> None:
    if event == "granted":
        attempt.granted = attempt.sure = at
        attempt.lost = attempt.lost_at_once = line["lost"]
        fence = line["fences"].get(attempt.name)
        attempt.fence = tuple(fence) if fence else None
    elif event == "sure":
        attempt.sure = at
    elif event in {"releasing", "downgrading"}:
        attempt.lost = line["lost"]
        if not attempt.lost:
            attempt.sure = at
        if event == "releasing":
            attempt.releasing = at
        else:
            attempt.downgraded = at
    elif event == "wanted":
        attempt.wanted = at
    elif event == "released":
        attempt.released = at
    elif event == "looked":
        attempt.why = line["why"]
    else:
        assert event == "refused"
        attempt.refused, attempt.how, attempt.why = at, line["how"], line.get("why", "")
