"""``distlock watch``: the list, again and again."""

from __future__ import annotations

import sys
import threading
from itertools import count, islice

import click

from distlock.cli import output
from distlock.cli.options import Where, with_options

#: More would not fit on a screen.
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
    """Watch the locks that are held or waited for, the longest first.

    With START, only names that begin with it. With --json each line is one object, and each look ends with an
    empty line.
    """
    pause = threading.Event()
    live = sys.stdout.isatty() and not as_json
    with where.locks() as locks:
        for look in count(1):
            found = sorted(islice(locks.list(before), 1000), key=lambda one: (one.party.since, not one.held))
            if live:
                click.clear()
            if as_json:
                for one in found:
                    output.echo_json(output.listed_json(one))
            else:
                output.echo_table(output.TITLES, [output.row(one) for one in found[:MOST]])
            if len(found) > MOST and not as_json:
                click.echo("There are more.")
            if not found and look == 1:
                where.hint(locks)
            if look == looks:
                return
            if not live:
                click.echo("")
            sys.stdout.flush()
            pause.wait(interval)
