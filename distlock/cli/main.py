"""The command ``distlock``, and its subcommands, which ``manage.py`` and ``flask`` offer, too."""

from __future__ import annotations

import click

from distlock import __version__
from distlock.cli.doctor import doctor, prepare
from distlock.cli.listing import list_, watch
from distlock.cli.one_lock import ask, break_, show
from distlock.cli.options import Commands
from distlock.cli.run import run

#: The subcommands of ``distlock``, ``manage.py distlock`` and ``flask distlock``.
COMMANDS: tuple[click.Command, ...] = (list_, show, watch, ask, break_, doctor, prepare, run)

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

HELP = """Look at distributed locks, ask for one or break it, and run commands under them.

In a site, use 'python manage.py distlock' or 'flask distlock': they know its settings. Elsewhere --url or
DISTLOCK_URL names the lock service, and --prefix or DISTLOCK_PREFIX the prefix of the names.
"""

EPILOG = (
    "Exit codes: 0 done, 1 nobody asked, nothing broken, or an error found, 2 wrong usage, "
    "69 no lock service, 74 output not written, 75 lock taken, 76 lock lost."
)


@click.group("distlock", cls=Commands, help=HELP, epilog=EPILOG, context_settings=HELP_OPTIONS)
@click.version_option(__version__, prog_name="distlock")
def distlock() -> None: ...


@distlock.command("prune", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def prune(words: tuple[str, ...]) -> None:
    """In a site: take away fence rows of names nobody locks any more."""
    raise click.UsageError(
        "The fence's table is in a site's database, which only the site knows. Run there: "
        "'python manage.py distlock prune' or 'flask distlock prune'."
    )


for command in COMMANDS:
    distlock.add_command(command)
