"""The parts that the detectors of stale writes for Django and for SQLAlchemy share.

A write is stale if its row was loaded before the outermost lock and is saved under the lock: it overwrites
what another request has written in between, or does not consider it. By default the detectors are on in debug
mode and in `distlock.testing.race`.
"""

from __future__ import annotations

import linecache
import logging
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, cast, get_args

from distlock.clock import now
from distlock.errors import ConfigurationError, StaleWrite
from distlock.locks import self_deadlock as blocks
from distlock.terms import PERMIT

logger = logging.getLogger("distlock")

#: The name of the setting, in both frameworks: see `mode_of`.
SETTING = "DISTLOCK_STALE_WRITES"

Mode = Literal["warn", "raise", "off"]


# -- lines of the site's code -----------------------------------------------------------------------------


class CodeLine(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line} in {self.function}" + (f": {code}" if code else "")


class Read(NamedTuple):
    """One read of a row: when, on `distlock.clock`, and where."""

    at: float
    place: CodeLine


_STANDARD = sysconfig.get_path("stdlib")
_OWN = str(Path(__file__).parents[2])
_OURS = tuple(f"{_OWN}/{package}/" for package in ("distlock", "django_distlock", "flask_distlock"))
_INSTALLED = ("/site-packages/", "/dist-packages/")
#: The code that calls views and middlewares. Frames outside of it belong to the server or to a test.
_CALLERS = (
    "/django/core/handlers/",
    "/django/test/client.py",
    "/flask/app.py",
    "/werkzeug/serving.py",
)
#: Packages that load and save rows for other code. The search for a line skips them.
_MAPPERS = ("/django/db/", "/django/dispatch/", "/sqlalchemy/", "/flask_sqlalchemy/")

#: Code that runs, in this thread, what a coroutine awaits.
_BRIDGE = "/asgiref/"
#: Returns the frames of the coroutine that awaits the running thread, the innermost first.
Awaiting = Callable[[], Iterator[FrameType]]


def this_place(awaiting: Awaiting | None = None) -> CodeLine:
    """Return the innermost line on the stack that is the site's own; if there is none, that of a library.

    *awaiting*: where to search if this thread works for a coroutine.
    """
    library: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        kind = _kinds.get(frame.f_code.co_filename) or _kind_of(frame.f_code.co_filename)
        if kind == "site":
            return _line_of(frame)
        if kind == "caller":
            break
        if kind == "bridge" and awaiting is not None:
            for one in awaiting():
                if _kind_of(one.f_code.co_filename) == "site":
                    return _line_of(one)
            awaiting = None
        if kind == "library" and library is None:
            library = frame
        frame = frame.f_back
    return _line_of(library) if library is not None else CodeLine("unknown code", 0, "an unknown function")


def _line_of(frame: FrameType) -> CodeLine:
    return CodeLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


_Kind = Literal["site", "library", "caller", "bridge", "between"]
#: The kind of the code in each file, cached because it is needed for each loaded row.
_kinds: dict[str, _Kind] = {}


def _kind_of(file: str) -> _Kind:
    kind: _Kind = "site"
    if any(part in file for part in _CALLERS):
        kind = "caller"
    elif _BRIDGE in file:
        kind = "bridge"
    elif file.startswith((_STANDARD, "<", *_OURS)) or any(part in file for part in _MAPPERS):
        kind = "between"
    elif any(folder in file for folder in _INSTALLED):
        kind = "library"
    _kinds[file] = kind
    return kind


def this_read(awaiting: Awaiting | None = None) -> Read:
    """Return a `Read` with the present time and `this_place`."""
    return Read(now(), this_place(awaiting))


# -- the outermost lock -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutermostLock:
    """The outermost lock around the running code."""

    names: tuple[str, ...]
    #: The moment of its grant on `distlock.clock`.
    since: float


def outermost_lock() -> OutermostLock | None:
    """Return the outermost lock around the running code, or around the code that started it; else None.

    A semaphore does not count, because several callers may be inside at once.
    """
    held = [grant for grant in blocks.held_around() if grant.mode != PERMIT]
    if not held:
        return None
    first = min(held, key=lambda grant: grant.since)
    return OutermostLock(first.names, first.since)


# -- reports ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """A stale write."""

    #: The name of the row in messages: ``Product 1``.
    row: str
    fields: Sequence[str]
    lock: OutermostLock
    loaded: CodeLine
    saved: CodeLine
    #: The remedy: a sentence.
    remedy: str

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.lock.names))
        return (
            f"{self.row} was loaded before the lock {names} and is saved under it: what another request has "
            f"written to {', '.join(self.fields)} in between is overwritten.\n"
            f"  loaded: {self.loaded}\n"
            f"  saved:  {self.saved}\n"
            f"{self.remedy}"
        )


class _Race:
    """The stale writes that the detectors have found during one race."""

    def __init__(self, mode: Mode | None) -> None:
        self.mode = mode
        self.found: dict[tuple[CodeLine, CodeLine], StaleWrite] = {}


#: The latest reports, each with `OutermostLock.since` and two lines, so that a loop does not fill the log.
_latest: deque[tuple[float, CodeLine, CodeLine]] = deque(maxlen=100)
_races: list[_Race] = []
#: The functions that turn each framework's detector on or off: see `add_detector`.
_detectors: list[Callable[[], None]] = []
_mutex = threading.RLock()


def report(write: Write, *, raises: bool) -> None:
    """Raise `StaleWrite` for *write* if *raises*, else log a warning.

    A report is not logged if one of `_latest` had the same lock and lines, or if a running race has met the
    same lines before.
    """
    if raises:
        raise StaleWrite(str(write))
    lines = write.loaded, write.saved
    with _mutex:
        if not (known := (write.lock.since, *lines) in _latest):
            _latest.append((write.lock.since, *lines))
        for race in _races:
            known = known or lines in race.found
            race.found.setdefault(lines, StaleWrite(str(write)))
    if not known:
        logger.warning("%s", write)


# -- the switch -------------------------------------------------------------------------------------------


def mode_of(setting: object, debug: bool) -> Mode:
    """Return the mode for *setting*, the value of `SETTING`.

    None: "warn" in debug mode and in races, else "off". While a race with a mode of its own runs, "off" is
    "warn", too. Raises `ConfigurationError` for any other value.
    """
    if setting is not None and setting not in get_args(Mode):
        raise ConfigurationError(
            f'{SETTING} is {setting!r}: write "warn", "raise", "off", or None, which warns in debug mode.'
        )
    if setting is None or setting == "off":
        asked = any(race.mode is not None for race in _races)
        return "warn" if asked or (setting is None and (debug or _races)) else "off"
    return cast(Mode, setting)


def add_detector(update: Callable[[], None]) -> None:
    """Call *update* whenever a race begins or ends, because that may change what `mode_of` returns."""
    with _mutex:
        _detectors.append(update)


@contextmanager
def in_race(mode: Mode | None) -> Iterator[None]:
    """Run the block as a race, with the detectors on.

    *mode*: "warn": log stale writes, even if the settings say "off"; "raise": also raise the first
    `StaleWrite` at the end of the block; "off": change nothing; None: do as the settings say, by default
    "warn".
    """
    if mode == "off":
        yield
        return
    race = _Race(mode)
    _enter(race)
    try:
        yield
    finally:
        _leave(race)
    if mode == "raise" and race.found:
        raise next(iter(race.found.values()))


def _enter(race: _Race) -> None:
    with _mutex:
        _races.append(race)
        for update in _detectors:
            update()


def _leave(race: _Race) -> None:
    with _mutex:
        _races.remove(race)
        for update in _detectors:
            update()
