"""``distlock break``: free a lock that is stuck."""

from __future__ import annotations

import re

import click

from distlock.cli.exits import NO
from distlock.cli.options import Where, with_kind, with_options
from distlock.cli.output import echo_json, fence, state_json, text, unsaid
from distlock.cli.show import lines
from distlock.cli.site import operator
from distlock.modes import LOCK, SEMAPHORE, Kind
from distlock.operate.asking import break_lock
from distlock.operate.looking import LockState


@click.command("break")
@click.argument("name")
@click.option(
    "--fence", "seen", metavar="EPOCH:NUMBER", help="Only this hold, as 'show' and the log name it."
)
@click.option(
    "--transaction", metavar="NUMBER", help="Of a lock that is a row: only this one, as 'show' names it."
)
@click.option("--yes", is_flag=True, help="Break it without asking.")
@with_kind(LOCK, SEMAPHORE)
@with_options
@click.pass_context
def break_(
    context: click.Context,
    where: Where,
    as_json: bool,
    name: str,
    seen: str | None,
    transaction: str | None,
    yes: bool,
    kind: Kind,
) -> None:
    """Break the lock NAME: the next in its queue gets it.

    Only the hold that is shown is broken. If it ends meanwhile, nothing happens. The broken holder is told.
    With a fence it can't commit any more; without one it may go on beside the next holder.
    """
    if seen is not None and not re.fullmatch(r"\d+:\d+", seen):
        raise click.BadParameter(f"{seen!r} is no fence, such as 1:42.", param_hint="--fence")
    with where.locks() as locks:
        state = locks.inspect(name, kind)
        if refusal := _refusal(state, seen, transaction):
            said, broken = refusal, False
        else:
            # A hold without an id is refused, whatever the answer is.
            if state.hold and not yes:
                for line in lines(state):
                    click.echo(line, err=True)
                click.confirm("Break it?", abort=True, err=True)
            with unsaid():
                broken = break_lock(locks.namespace, state, operator())
            said = f"{text(name)} was broken: its fence was {fence(state)}." if broken else _passed_on(name)
    if as_json:
        echo_json({"broken": broken, **state_json(state)})
    else:
        click.echo(said, err=not broken)
        if state.holder is None:
            where.hint(locks)
    if not broken:
        context.exit(NO)


def _refusal(state: LockState, seen: str | None, transaction: str | None) -> str:
    """Why nothing is to be broken; "" where something is."""
    if state.holder is None:
        return f"{text(state.name)} is free. Nothing was broken."
    if state.fence is not None and seen not in (None, fence(state)):
        return f"{_passed_on(state.name)} Its fence is {fence(state)} now, and no longer {seen}."
    if transaction not in (None, state.transaction):
        return f"{_passed_on(state.name)} Its transaction is not {transaction} now."
    return ""


def _passed_on(name: str) -> str:
    return f"{text(name)} has passed on meanwhile. Nothing was broken."
