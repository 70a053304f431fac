"""The command ``distlock`` for a Django site. Importing this module needs click, an optional dependency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from django.db import DEFAULT_DB_ALIAS

from distlock.backends.inspectable import Finding
from distlock.cli.main import COMMANDS, HELP_OPTIONS
from distlock.cli.output import exits_for_errors
from distlock.cli.site import SettingsSite
from distlock.fence.prune import DAYS
from distlock.fence.prune import summary as prune_summary
from django_distlock.conf import clients
from django_distlock.guarding.fence import database_of, examine, rows_connection
from django_distlock.guarding.fence import prune as prune_rows


class _Site(SettingsSite):
    def __init__(self, command: str) -> None:
        super().__init__(clients, command, rows_connection)

    def examine(self, alias: str | None, threads: int | None) -> Iterator[Finding]:
        yield from super().examine(alias, threads)
        fence = self.settings(alias).fence
        using = database_of(fence)
        finding = examine(using or DEFAULT_DB_ALIAS, wanted=using is not None)
        if finding is not None:
            yield finding


@click.group("manage.py distlock", context_settings=HELP_OPTIONS)
@click.pass_context
def distlock(context: click.Context) -> None:
    """Inspect this site's locks, break one that is stuck, and prune the fence table."""
    context.obj = _Site(context.obj)


@distlock.command("prune")
@click.option(
    "--older-than",
    metavar="DAYS",
    type=float,
    default=DAYS,
    show_default=True,
    help="Keep names that were locked in the last DAYS days.",
)
@click.option(
    "--database", default=DEFAULT_DB_ALIAS, show_default=True, help="A key of DATABASES, as in fence=."
)
@click.option("--dry-run", is_flag=True, help="Only count them.")
def prune(older_than: float, database: str, dry_run: bool) -> None:
    """Delete the fence rows of names that nobody locks any more."""
    with exits_for_errors():
        rows = prune_rows(database, older_than, dry_run)
    click.echo(prune_summary(rows, older_than, dry_run))


for command in COMMANDS:
    distlock.add_command(command)


def call(words: Sequence[str], command: str) -> tuple[int, str | None]:
    """Run the command line *words*. Return the exit code and an error message or None.

    *command*: what the user typed before *words*, for hints.
    """
    asked = ["--help"] if not words or words[0] == "help" else [*words]
    try:
        # main() returns the code of an exit, and None at the end of a command.
        code = distlock.main(asked, prog_name="manage.py distlock", standalone_mode=False, obj=command)
    except click.Abort:
        return 1, "Nothing was done."
    except click.ClickException as error:
        return error.exit_code, error.format_message()
    return code or 0, None
