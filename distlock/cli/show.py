"""``distlock show``: one lock, with its holder, its queue, and how to break it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import click

from distlock.cli.options import Where, with_options
from distlock.cli.output import echo_json, fence, seconds, state_json, text
from distlock.operate.looking import LockState, Party
from distlock.operate.typed import URL


@click.command("show")
@click.argument("name")
@with_options
def show(where: Where, as_json: bool, name: str) -> None:
    """Show the lock NAME: holder, lease, fence, queue in order."""
    with where.locks() as locks:
        state = locks.inspect(name)
    if as_json:
        echo_json(state_json(state))
        return
    for line in lines(state):
        click.echo(line)
    if state.holder is None:
        where.hint(locks)
    else:
        typed = where.typed()
        first = f", put the URL into {URL}, then" if typed.hides_url else ""
        click.echo(f"To break it{first}: {typed.line('break', name, *_of(state))}")


def _of(state: LockState) -> Iterator[tuple[str, str]]:
    """The options that name its hold."""
    yield "--fence", str(fence(state))
    if state.transaction:
        yield "--transaction", state.transaction


def lines(state: LockState) -> Iterator[str]:
    """*state* in sentences."""
    name = text(state.name)
    if state.holder is None:
        yield f"{name} is free."
    else:
        yield f"{name} is held by {held_by(state.holder)}."
        lease = (
            f"It has no lease, and ends with its {'transaction' if state.transaction else 'process'}."
            if math.isinf(state.remaining)
            else f"Its lease ends in {state.remaining:.1f} s, unless it is renewed."
        )
        transaction = f", its transaction {state.transaction}" if state.transaction else ""
        yield f"Its fence is {fence(state)}{transaction}. {lease}"
    if state.waiting:
        yield "1 process waits:" if state.waiting == 1 else f"{state.waiting} processes wait:"
    for place, party in enumerate(state.queue, 1):
        yield f"{place:3}. {waits(party)}"
    if state.waiting > len(state.queue):
        yield f"     and {state.waiting - len(state.queue)} more"


def held_by(party: Party) -> str:
    lasted = seconds(party.seconds())
    return text(str(party)) + (f", for {lasted}" if lasted else "")


def waits(party: Party) -> str:
    if not party.waiting:
        return text(str(party))
    callers = "1 caller" if party.waiting == 1 else f"{party.waiting} callers"
    return f"{text(str(party))}: {callers}, the first for {seconds(party.seconds())}"
