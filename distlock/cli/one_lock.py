"""``distlock show``, ``ask`` and ``break``: look at one lock, ask its holder to release it, or free it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import click

from distlock.cli.options import Where, with_kind, with_options
from distlock.cli.output import NO, echo_json, fence, seconds, state_json, text, unlogged
from distlock.cli.site import operator
from distlock.operate.command_line import URL
from distlock.operate.looking import LockState, Party, ask_back, break_lock
from distlock.terms import KINDS, LATCH, LOCK, READ, SEMAPHORE, Kind


@click.command("show")
@click.argument("name")
@with_kind(*KINDS)
@with_options
def show(where: Where, as_json: bool, name: str, kind: Kind) -> None:
    """Show the lock NAME: holder, lease, fence, queue in order. Or a semaphore, or a latch."""
    with where.locks() as locks:
        state = locks.inspect(name, kind)
        if as_json:
            echo_json(state_json(state))
            return
        for line in lines(state):
            click.echo(line)
        if state.left is not None:
            return
        if state.holder is None:
            where.hint(locks)
        elif state.hold:
            typed = where.typed()
            first = f", put the URL into {URL}, then" if typed.hides_url else ""
            it = "the first of them" if state.kind == SEMAPHORE and state.others else "it"
            click.echo(f"To break {it}{first}: {typed.line('break', name, *_hold_options(state))}")
        elif state.ended_by:
            click.echo(f"To end its session on the server, and all that this holds: {state.ended_by}")


def _hold_options(state: LockState) -> Iterator[tuple[str, str]]:
    """Yield the options that name the hold of *state*."""
    if state.kind != LOCK:
        yield "--kind", state.kind
    yield "--fence", str(fence(state))
    if state.transaction:
        yield "--transaction", state.transaction


def lines(state: LockState) -> Iterator[str]:
    """Yield the lines that describe *state*."""
    if state.kind == LATCH:
        yield _count(state)
    elif state.holder is None:
        yield f"{text(state.name)} is free."
        yield from _servers(state)
    elif state.kind == SEMAPHORE:
        yield from _permits(state, state.holder)
    else:
        yield from _hold(state, state.holder)
    if state.waiting:
        yield "1 process waits:" if state.waiting == 1 else f"{state.waiting} processes wait:"
    for place, party in enumerate(state.queue, 1):
        yield f"{place:3}. {waits(party)}"
    if state.waiting > len(state.queue):
        yield f"     and {state.waiting - len(state.queue)} more"


def _hold(state: LockState, holder: Party) -> Iterator[str]:
    name = text(state.name)
    how = "read" if state.mode == READ else "held"
    others = "other" if state.others == 1 else "others"
    more = f" and {state.others} {others}" if state.others else ""
    yield f"{name} is {how} by {held_by(holder)}{more}."
    if state.mode == READ and state.inside > 1 + state.others:
        yield f"{state.inside} callers read it."
    if state.fence is None:
        yield "The lock service tells neither its fence nor its lease."
        return
    transaction = f", its transaction {state.transaction}" if state.transaction else ""
    yield f"Its fence is {fence(state)}{transaction}. {_lease(state)}"
    yield from _servers(state)


def _servers(state: LockState) -> Iterator[str]:
    if (seen := state.quorum) is None:
        return
    if state.holder is None:
        if seen.have:
            yield f"A hold that no majority has is left on {state.servers}. It ends with its lease."
    elif seen.have > seen.of // 2:
        yield f"It is held on {state.servers}."
    else:
        yield f"It is held on {state.servers}: whether a majority has it is not known."


def _permits(state: LockState, holder: Party) -> Iterator[str]:
    of = f" of {state.limit}" if state.limit else ""
    out = "permit is" if state.inside == 1 and not of else "permits are"
    yield f"{state.inside}{of} {out} out of {text(state.name)}:"
    for party in state.holders:
        yield f"  {f'{party.holding} ' if party.holding > 1 else ''}{held_by(party)}"
    if state.others >= len(state.holders):
        yield f"  and {1 + state.others - len(state.holders)} more"
    if state.remaining is not None and not math.isinf(state.remaining):
        yield f"The lease of the first ends in {state.remaining:.1f} s, unless it is renewed."


def _lease(state: LockState) -> str:
    if state.remaining is None or math.isinf(state.remaining):
        return f"It has no lease, and ends with its {'transaction' if state.transaction else 'process'}."
    return f"Its lease ends in {state.remaining:.1f} s, unless it is renewed."


def _count(state: LockState) -> str:
    name = text(state.name)
    if state.left is None:
        return f"There is no latch {name}."
    gone = f"It is gone in {seconds(state.remaining or 0.0) or '0 s'}"
    if not state.left:
        return f"The latch {name} is open. {gone}."
    return f"The latch {name} has {state.left} of {state.total} left. {gone}, unless something is counted."


def held_by(party: Party) -> str:
    lasted = seconds(party.seconds())
    return text(str(party)) + (f", for {lasted}" if lasted else "")


def waits(party: Party) -> str:
    if not party.waiting:
        return text(str(party))
    callers = "1 caller" if party.waiting == 1 else f"{party.waiting} callers"
    return f"{text(str(party))}: {callers}, the first for {seconds(party.seconds())}"


@click.command("ask")
@click.argument("name")
@with_kind(LOCK, SEMAPHORE)
@with_options
@click.pass_context
def ask(context: click.Context, where: Where, as_json: bool, name: str, kind: Kind) -> None:
    """Ask the holder of the lock NAME to give it back.

    Nothing is taken by force: the holder is told, and may go on. The lock is free when it has released it.
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
            # break_lock() refuses to break a hold without an id, so don't ask about one.
            if state.hold and not yes:
                for line in lines(state):
                    click.echo(line, err=True)
                click.confirm("Break it?", abort=True, err=True)
            with unlogged():
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
    """Return why the hold must not be broken; "" if it may be."""
    if state.holder is None:
        return f"{text(state.name)} is free. Nothing was broken."
    if state.fence is not None and seen not in (None, fence(state)):
        return f"{_passed_on(state.name)} Its fence is {fence(state)} now, and no longer {seen}."
    if transaction not in (None, state.transaction):
        return f"{_passed_on(state.name)} Its transaction is not {transaction} now."
    return ""


def _passed_on(name: str) -> str:
    return f"{text(name)} has passed on meanwhile. Nothing was broken."
