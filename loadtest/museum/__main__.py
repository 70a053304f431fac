"""``python -m loadtest.museum``: break every exhibit, count the damage, and do the same to distlock."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from demo_shop.museum.exhibits import EXHIBITS
from loadtest.museum.scenes import TRIALS, Trial
from loadtest.servers.lock_services import open_lock_service
from loadtest.servers.processes import StackError

ALL_SHOWN, WRONG, COULD_NOT_RUN, INTERRUPTED = 0, 1, 3, 130
WIDTHS = (36, 31, 8)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.museum",
        description="Locks as people write them, each broken by a run that distlock passes.",
        epilog="Exit status: 0 every exhibit broke and distlock did not, 1 it was otherwise, "
        "3 it could not be run.",
    )
    parser.add_argument("exhibits", nargs="*", metavar="EXHIBIT", help=f"of {', '.join(EXHIBITS)}; or all")
    wanted = parser.parse_args(arguments).exhibits
    if unknown := sorted(set(wanted) - set(EXHIBITS)):
        print(f"There is no exhibit {unknown[0]!r}. There are: {', '.join(EXHIBITS)}.", file=sys.stderr)
        return COULD_NOT_RUN
    # SIGTERM has to raise SystemExit, so that we stop our servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Some runs cut distlock off from the service, so that it logs lost locks. The table tells enough.
    logging.getLogger("distlock").addHandler(logging.NullHandler())
    try:
        return show([trial for trial in TRIALS if not wanted or trial.exhibit in wanted])
    except StackError as error:
        print(f"The museum can't open: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return INTERRUPTED


def show(trials: list[Trial]) -> int:
    as_it_should = True
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"distlock-run-{os.getpid()}-"))
        urls = {
            service: stack.enter_context(open_lock_service(service, Path(directory)))
            for service in sorted({trial.service for trial in trials})
        }
        print(row("exhibit: what happens", "damage", "distlock"), flush=True)
        for trial in trials:
            damage = trial.try_exhibit(urls[trial.service])
            ours = trial.try_distlock(urls[trial.service])
            as_it_should = as_it_should and damage > 0 and ours == 0
            what = trial.scene.__name__.replace("_", " ")
            print(row(f"{trial.exhibit}: {what}", f"{damage} {trial.unit}", str(ours)), flush=True)
    print()
    if not as_it_should:
        print("WRONG: an exhibit passed its run, or distlock did not.")
        return WRONG
    print("Every exhibit broke, and distlock passed the very same runs.")
    return ALL_SHOWN


def row(what: str, damage: str, ours: str) -> str:
    exhibit, seen, distlock = WIDTHS
    return f"{what:<{exhibit}}  {damage:<{seen}}  {ours:>{distlock}}"


if __name__ == "__main__":
    sys.exit(main())
