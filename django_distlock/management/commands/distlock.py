"""``manage.py distlock prune``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS

from distlock.errors import LockError
from distlock.fence.prune import DAYS, told
from django_distlock.guarding.fence import prune


class Command(BaseCommand):
    help = "Look after what distlock keeps in the database."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        line = commands.add_parser(
            "prune", help="Take away the fence's rows of names that nobody locks any more."
        )
        line.add_argument(
            "--older-than",
            type=float,
            default=DAYS,
            metavar="DAYS",
            help="Leave names that were locked in so many days. Default: %(default)g",
        )
        line.add_argument("--database", default=DEFAULT_DB_ALIAS, help="A key of DATABASES, as in fence=.")
        line.add_argument("--dry-run", action="store_true", help="Only count them.")

    def handle(self, *args: Any, **options: Any) -> None:
        days, dry_run = options["older_than"], options["dry_run"]
        try:
            rows = prune(options["database"], days, dry_run)
        except LockError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(told(rows, days, dry_run))
