"""``distlock doctor`` and ``distlock prepare``: before the first lock."""

from __future__ import annotations

from dataclasses import asdict

import click

from distlock.backends.inspectable import Finding
from distlock.cli.options import Where, with_options
from distlock.cli.output import NO, echo_json, text
from distlock.operate.doctor import diagnose


@click.command("doctor")
@click.option(
    "--threads", type=click.IntRange(1), help="The number of threads in each process of your server."
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@with_options
@click.pass_context
def doctor(context: click.Context, where: Where, as_json: bool, threads: int | None, strict: bool) -> None:
    """Check the lock service and the settings. Each finding comes with its remedy.

    Takes one lock, "distlock-doctor", and releases it. Exits with 1 if there is an error.
    """
    with where.locks() as locks:
        found = [*diagnose(locks), *where.site.examine(where.alias, threads)]
    if as_json:
        echo_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            say(finding)
    bad = {"error", "warning"} if strict else {"error"}
    if any(finding.level in bad for finding in found):
        context.exit(NO)


def say(finding: Finding) -> None:
    click.echo(f"{finding.level:8} {finding.about:12} {text(finding.said)}")
    if finding.remedy:
        click.echo(f"{'':21} -> {finding.remedy}")


@click.command("prepare")
@with_options
def prepare(where: Where) -> None:
    """Make what the lock service needs before its first lock.

    PostgreSQL needs a table and a sequence, MariaDB and MySQL a table, made by a user who may. What is there
    already stays as it is.
    """
    with where.locks() as locks:
        click.echo(locks.namespace.prepare())
