"""``distlock list`` and ``distlock watch``: what is held and waited for, once or again and again."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, islice

import click

from distlock.cli.options import Where, with_options
from distlock.cli.output import echo_json, echo_listed, listed_json
from distlock.errors import BackendUnavailable
from distlock.operate.looking import Listed


@click.command("list")
@click.argument("before", metavar="[START]", default="")
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(1), help="Show at most this many lines."
)
@with_options
def list_(where: Where, as_json: bool, before: str, limit: int) -> None:
    """List what is held or waited for, in all processes.

    Locks, semaphores, and latches that are waited for. With START, only names that begin with it. A lock
    appears once it has been held or waited for longer than about three seconds; 'show' sees it at once. With
    --json each line is one object.
    """
    with where.locks() as locks:
        found = list(islice(locks.list(before), limit + 1))
        shown = sorted(found[:limit], key=lambda one: (one.name, not one.held, one.party.since))
        if as_json:
            for one in shown:
                echo_json(listed_json(one))
        elif shown:
            echo_listed(shown)
        else:
            click.echo("No lock has been held or waited for longer than about three seconds.")
            where.hint(locks)
        if len(found) > limit:
            click.echo(f"There are more than {limit}. Name what they begin with, or raise --limit.", err=True)


#: Show at most this many lines: nobody reads more every few seconds.
MOST = 100


@click.command("watch")
@click.argument("before", metavar="[START]", default="")
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between two looks.",
)
@click.option(
    "--count", "looks", type=click.IntRange(1), help="Stop after this many looks. Default: at Ctrl-C."
)
@with_options
def watch(where: Where, as_json: bool, before: str, interval: float, looks: int | None) -> None:
    """Watch what is held or waited for, the longest first.

    With START, only names that begin with it. With --json each line is one object, and each look ends with an
    empty line.
    """
    pause = threading.Event()
    live = sys.stdout.isatty() and not as_json
    with suppress(KeyboardInterrupt), where.locks() as locks:
        for look in count(1):
            try:
                found = sorted(islice(locks.list(before), 1000), key=_longest_first)
            except BackendUnavailable as error:
                # If the lock service has answered before, it may come back, so go on.
                if look in {1, looks}:
                    raise
                click.echo(str(error), err=True)
            else:
                if live:
                    click.clear()
                show(found, as_json, live)
                if not found and look == 1:
                    where.hint(locks)
                if not live and look != looks:
                    click.echo("")
                sys.stdout.flush()
            if look == looks:
                return
            pause.wait(interval)


def _longest_first(one: Listed) -> tuple[float, bool]:
    return one.party.since, not one.held


def show(found: Sequence[Listed], as_json: bool, live: bool) -> None:
    if as_json:
        for one in found:
            echo_json(listed_json(one))
        return
    # The first lines matter most, so a terminal shows only as many as fit.
    columns, lines = shutil.get_terminal_size()
    most = min(MOST, max(1, (lines - 5) // (1 if columns >= 80 else 2))) if live else MOST
    echo_listed(found[:most])
    if len(found) > most:
        click.echo("There are more.")
