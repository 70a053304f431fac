"""The entry point of the commands ``distlock`` and ``python -m distlock``."""

from __future__ import annotations

import sys

from distlock.suggestions import install_hint


def main() -> None:
    try:
        from distlock.cli.main import distlock
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(f"The command distlock needs click. {install_hint('cli')}")
    distlock(prog_name="distlock")


if __name__ == "__main__":
    main()
