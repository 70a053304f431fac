"""``distlock ask``: ask the holder of a lock to give it back."""

from __future__ import annotations

import click

from distlock.cli.exits import NO
from distlock.cli.options import Where, with_kind, with_options
from distlock.cli.output import echo_json, state_json, text
from distlock.cli.show import lines
from distlock.cli.site import operator
from distlock.modes import LOCK, SEMAPHORE, Kind
from distlock.operate.asking import ask_back
from distlock.operate.typed import URL


@click.command("ask")
@click.argument("name")
@with_kind(LOCK, SEMAPHORE)
@with_options
@click.pass_context
def ask(context: click.Context, where: Where, as_json: bool, name: str, kind: Kind) -> None:
    """Ask the holder of the lock NAME to give it back.

    Nothing is taken by force: it is told, and may go on. The lock is free when it has given it back.
    """
    with where.locks() as locks:
        state = locks.inspect(name, kind)
        asked = ask_back(locks.namespace, state, operator())
    if as_json:
        echo_json({"asked": asked, **state_json(state)})
    elif asked:
        if state.holder is not None:
            click.echo(next(iter(lines(state))))
        typed, more = where.typed(), [("--kind", kind)] if kind != LOCK else []
        first = f", put the URL into {URL}, then" if typed.hides_url else ""
        click.echo("Its holder was asked to give it back. It is told within some seconds, and may go on.")
        click.echo(f"To see whether it did{first}: {typed.line('show', name, *more)}")
    else:
        click.echo(f"{text(name)} is free. Nobody was asked.", err=True)
        where.hint(locks)
    if not asked:
        context.exit(NO)
