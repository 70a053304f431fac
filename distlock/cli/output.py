"""The output of commands: tables, with rich if it is installed, and JSON; and their exit codes.

The exit codes are those of sysexits.h if one fits, as with flock(1).
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import click

from distlock import errors
from distlock.operate.looking import Listed, LockState, Party, printable
from distlock.terms import LATCH, LOCK, READ, SEMAPHORE

#: There was nobody to ask, or nothing to break; or the doctor found an error.
NO = 1
#: The command line, or a setting, can't work.
USAGE = 2
#: The lock service does not answer.
UNAVAILABLE = 69
#: The output can't be written.
UNWRITTEN = 74
#: The lock is held by somebody else. Try again later.
TAKEN = 75
#: The lock was lost while the command ran.
LOST = 76
#: The command can't be run; it does not exist; it was ended by a signal, whose number is added.
NOT_RUN, NOT_FOUND, SIGNAL = 126, 127, 128


class Failed(click.ClickException):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


def code_of(error: errors.LockError) -> int:
    match error:
        case errors.BackendUnavailable():
            return UNAVAILABLE
        case errors.LockTimeout() | errors.TooManyWaiters():
            return TAKEN
        case errors.ConfigurationError() | errors.InvalidName():
            return USAGE
    return LOST


@contextmanager
def exits_for_errors() -> Iterator[None]:
    """Have click print a lock error of the block as one line, and exit with the code of the error."""
    try:
        yield
    except errors.LockError as error:
        raise Failed(str(error), code_of(error)) from error


#: The errors of a full disk or file.
_UNWRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
#: The padding of a column in rich's tables.
_MARGIN = 3


def text(name: str) -> str:
    """Return *name* with escapes for characters that control the terminal: any client may choose names."""
    return printable(name)


def seconds(number: float) -> str:
    """Return *number* seconds as short text, such as ``3 min``; "" for 0."""
    if not number:
        return ""
    if number < 120:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 7200 else f"{number / 3600:.0f} h"


def fence(state: LockState) -> str | None:
    """Return the fence as the log writes it, epoch and number; None: there is none."""
    return None if state.fence is None else f"{state.fence.epoch}:{state.fence.number}"


@contextmanager
def unlogged() -> Iterator[None]:
    """Drop the block's log records if no log is configured and a terminal would show them.

    The command itself prints the same.
    """
    logger = logging.getLogger("distlock")
    if logger.hasHandlers() or not sys.stderr.isatty():
        yield
        return
    nowhere = logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


@contextmanager
def exits_if_unwritten() -> Iterator[None]:
    """Print one line if the block can't write its output, and exit with `UNWRITTEN`.

    click itself ends a command whose output goes to a closed pipe.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITTEN:
            raise
        # At exit, Python flushes the rest of the output: let that go to /dev/null.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Failed(f"The output can't be written: {error.strerror}.", UNWRITTEN) from error


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value))


def echo_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print *rows* in columns under *titles*. On a terminal, rich draws the table if it is installed.

    On a terminal that is too narrow for the columns, print each row as a paragraph.
    """
    shown = [titles, *rows]
    widths = [max(map(width, column)) for column in zip(*shown, strict=True)]
    if not sys.stdout.isatty():
        written: Iterable[str] = lines(shown, widths)
    elif sum(widths) + _MARGIN * len(widths) > shutil.get_terminal_size().columns:
        written = paragraphs(titles, rows)
    elif draw_table(titles, rows):
        return
    else:
        written = lines(shown, widths)
    for line in written:
        click.echo(line)


def width(text: str) -> int:
    """Return how many columns of a terminal *text* takes: characters of some scripts take two."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) > 0 for one in text)


def lines(shown: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    return [
        "  ".join(cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def paragraphs(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for first, *rest in rows:
        yield first
        cells = [f"{title.lower()} {cell}" for title, cell in zip(titles[1:], rest, strict=True) if cell]
        yield f"  {', '.join(cells)}"


def draw_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Draw a table with rich. Return False if rich is not installed."""
    # Import rich here: all commands load this module, and rich is slow to load.
    try:
        import rich.box
        import rich.console
        import rich.table
        import rich.text
    except ImportError:
        return False
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for title in titles:
        table.add_column(title)
    for row in rows:
        # Text keeps rich from reading brackets in the cells as markup.
        table.add_row(*map(rich.text.Text, row))
    rich.console.Console().print(table)
    return True


# -- locks -----------------------------------------------------------------------------------------

TITLES = ("NAME", "STATE", "FOR", "CALLERS", "WHERE", "HOST", "PID")


def echo_listed(shown: Sequence[Listed]) -> None:
    """Print a table of *shown*, with a column for the kind unless all of them are locks."""
    titles: tuple[str, ...] = TITLES
    rows = [row(one) for one in shown]
    if any(one.kind != LOCK for one in shown):
        titles = ("KIND", *titles)
        rows = [(one.kind, *cells) for one, cells in zip(shown, rows, strict=True)]
    echo_table(titles, rows)


def state_of(one: Listed) -> str:
    """Return what a process does with a name, in a few words."""
    if one.kind == LATCH:
        return "waits" if one.left is None else f"waits, {one.left} of {one.total} left"
    of = f" of {one.limit}" if one.limit else ""
    if one.kind == SEMAPHORE:
        return f"holds {max(1, one.party.holding)}{of}" if one.held else "waits"
    return "waits" if not one.held else "reads" if one.mode == READ else "held"


def row(one: Listed) -> tuple[str, ...]:
    party = one.party
    holding = str(party.holding or "") if one.kind == LOCK else ""
    return (
        text(one.name),
        f"{state_of(one)}, not responding for {seconds(party.silent)}" if party.silent else state_of(one),
        seconds(party.seconds()),
        holding if one.held else str(party.waiting),
        text(party.where),
        text(party.host) or text(party.process),
        str(party.pid or ""),
    )


def party_json(party: Party) -> dict[str, Any]:
    return {**asdict(party), "seconds": round(party.seconds(), 1), "silent": round(party.silent, 1)}


def listed_json(one: Listed) -> dict[str, Any]:
    said = {"name": one.name, "kind": one.kind, "held": one.held, "mode": one.mode}
    return {**said, "limit": one.limit, "total": one.total, "left": one.left, **party_json(one.party)}


def state_json(state: LockState) -> dict[str, Any]:
    return {
        "name": state.name,
        "held": state.holder is not None,
        "holder": state.holder and party_json(state.holder),
        "fence": fence(state),
        "kind": state.kind,
        "mode": state.mode,
        "others": state.others,
        "holders": [party_json(party) for party in state.holders],
        "inside": state.inside,
        "limit": state.limit,
        "total": state.total,
        "left": state.left,
        "transaction": state.transaction or None,
        "ended_by": state.ended_by or None,
        "servers": state.quorum and asdict(state.quorum),
        "remaining": None if (left := state.remaining) is None or math.isinf(left) else round(left, 3),
        "waiting": state.waiting,
        "queue": [party_json(party) for party in state.queue],
    }
