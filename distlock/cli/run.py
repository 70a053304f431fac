"""``distlock run``: a command under a lock, as flock(1) does it on one host."""

from __future__ import annotations

import signal

import click

from distlock.cli.child import Child, signal_of
from distlock.cli.exits import LOST, Failed
from distlock.cli.options import Where, with_options
from distlock.errors import ConfigurationError, LostInside
from distlock.grants.grant import Grant
from distlock.locks.lock import Lock
from distlock.names import check_name
from distlock.numbers import LONG, check_timeout
from distlock.terms import Terms

#: A command that runs for longer counts as hung, seconds.
A_DAY = 86_400.0

_SECONDS = click.FloatRange(0, LONG)


@click.command("run")
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--timeout", "-w", type=_SECONDS, help="The longest wait, seconds. Default: the client's.")
@click.option("--nonblock", "-n", is_flag=True, help="Don't wait, as --timeout 0.")
@click.option("--no-timeout", is_flag=True, help="Wait as long as it takes.")
@click.option(
    "--max-hold",
    type=click.FloatRange(0, LONG, min_open=True),
    default=A_DAY,
    show_default=True,
    help="Seconds after which the command counts as hung, and its lock goes to the next.",
)
@click.option(
    "--on-lost",
    callback=signal_of,
    metavar="SIGNAL",
    default="TERM",
    show_default=True,
    help="What the command is sent when the lock is lost, or this process is killed; none: nothing.",
)
@with_options
@click.pass_context
def run(
    context: click.Context,
    where: Where,
    name: str,
    command: tuple[str, ...],
    timeout: float | None,
    nonblock: bool,
    no_timeout: bool,
    max_hold: float,
    on_lost: signal.Signals | None,
) -> None:
    """Run COMMAND holding the lock NAME, and exit with its code.

    Signals are passed on to it; without a terminal to its children, too. It finds DISTLOCK_NAME and
    DISTLOCK_FENCE, as 1:42, in its environment. Exits with 75 if the lock stays taken, with 69 if the lock
    service does not answer, with 76 if the lock was lost while the command ran, and with 128 and its number
    if a signal ended it.
    """
    if nonblock + no_timeout + (timeout is not None) > 1:
        raise click.UsageError("Say one of --timeout, --nonblock and --no-timeout.")
    child = Child(when_killed=on_lost)

    def lost(grant: Grant, why: str) -> None:
        click.echo(f"The lock {name!r} was lost: {why}.", err=True)
        if on_lost is not None:
            child.tell(on_lost)

    if timeout is not None:
        check_timeout(timeout)
    seconds = 0.0 if nonblock else -1 if no_timeout else timeout
    with where.locks(lost) as locks:
        if not locks.namespace.may_be_away:
            raise ConfigurationError(
                "A row is locked as long as a transaction, which a command can't be: 'distlock run' needs a "
                "lock service. Name one with --url or --alias."
            )
        # Only the command's name is published, because its arguments may hold secrets.
        terms = Terms(locks.namespace.terms.ttl, max_hold, f"{command[0].rpartition('/')[2]} (distlock run)")
        lock = Lock(locks, (check_name(name),), seconds, terms)
        try:
            with child.signals(), lock as grant:
                fence = f"{grant.fence.epoch}:{grant.fence.number}"
                code = child.run(command, {"DISTLOCK_NAME": name, "DISTLOCK_FENCE": fence})
        except LostInside as error:
            raise Failed(
                f"The command ended with {code}, without its lock. What it did may stand, and somebody else "
                "may have worked at the same time: look before you repeat it.",
                LOST,
            ) from error
    context.exit(code)
