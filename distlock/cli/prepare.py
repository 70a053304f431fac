"""``distlock prepare``: before the first lock."""

from __future__ import annotations

import click

from distlock.cli.options import Where, with_options


@click.command("prepare")
@with_options
def prepare(where: Where) -> None:
    """Make what the lock service needs before its first lock.

    PostgreSQL needs a table and a sequence, MariaDB and MySQL a table, made by a user who may. What is there
    already stays as it is.
    """
    with where.locks() as locks:
        click.echo(locks.namespace.prepare())
