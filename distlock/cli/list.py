"""``distlock list``: what is held and waited for, and where."""

from __future__ import annotations

from itertools import islice

import click

from distlock.cli.options import Where, with_options
from distlock.cli.output import echo_json, echo_listed, listed_json


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
