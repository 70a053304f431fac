"""``distlock list``: what is held and waited for, and where."""

from __future__ import annotations

from itertools import islice

import click

from distlock.cli.options import Where, with_options
from distlock.cli.output import TITLES, echo_json, echo_table, listed_json, row


@click.command("list")
@click.argument("before", default="")
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(1), help="At most so many lines."
)
@with_options
def list_(where: Where, as_json: bool, before: str, limit: int) -> None:
    """List the locks that are held or waited for, in all processes.

    BEFORE is what their names begin with. What has lasted for less than about three seconds is not listed.
    With --json each line is one object.
    """
    with where.locks() as locks:
        found = list(islice(locks.list(before), limit + 1))
    shown = sorted(found[:limit], key=lambda one: (one.name, not one.held, one.party.since))
    if as_json:
        for one in shown:
            echo_json(listed_json(one))
    elif shown:
        echo_table(TITLES, [row(one) for one in shown])
    else:
        click.echo("No lock has been held or waited for longer than about three seconds.")
    if len(found) > limit:
        click.echo(f"There are more than {limit}. Say what the names begin with, or raise --limit.", err=True)
