"""``manage.py distlock`` runs the commands of ``distlock`` with the site's settings, and adds ``prune``."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.operate.command_line import quoted
from distlock.suggestions import install_hint

#: The options of every Django command, which users may write anywhere before "--".
_COMMON = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
for _flag in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
    _COMMON.add_argument(_flag, action="store_true")
for _option in ("--settings", "--pythonpath", "--verbosity"):
    _COMMON.add_argument(_option)


class Command(BaseCommand):
    help = (
        "Look at locks, ask for one or break it, run the doctor, prune the fence's table. "
        "'python manage.py distlock help' lists the commands."
    )
    # Operators need this command even if the site's checks fail.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "args",
            metavar="COMMAND ...",
            nargs=argparse.REMAINDER,
            help="'help' lists them; each has --help.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            from django_distlock.management.operating import call
        except ModuleNotFoundError as error:
            if error.name != "click":
                raise
            raise CommandError(f"manage.py distlock needs click. {install_hint('cli')}") from error
        end = args.index("--") if "--" in args else len(args)
        common, words = _COMMON.parse_known_args(args[:end])
        out = options.get("stdout")
        with redirect_stdout(out) if out else nullcontext():
            code, said = call([*words, *args[end:]], _typed({**options, **_given(common)}))
        if said is not None:
            raise CommandError(said, returncode=code)
        if code:
            sys.exit(code)


def _given(common: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(common).items() if value is not None}


def _typed(options: dict[str, Any]) -> str:
    """Return how this command was typed, for example ``python manage.py distlock``, for hints to repeat."""
    program = sys.argv[0]
    match os.path.basename(program):
        case "django-admin":
            words = ["django-admin", "distlock"]
        case "__main__.py":
            words = ["python", "-m", "django", "distlock"]
        case name if name.endswith(".py"):
            words = ["python", program, "distlock"]
        case _:
            words = ["python", "manage.py", "distlock"]
    for name in ("settings", "pythonpath"):
        if options.get(name):
            words.append(f"--{name}={options[name]}")
    return " ".join(map(quoted, words))
