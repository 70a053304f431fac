"""``python -m tests.soak``: soak one lock service, and say what was wrong."""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

from loadtest.servers.lock_services import BACKENDS, TOPOLOGIES, open_lock_service
from loadtest.servers.processes import workspace
from tests.soak.judge import Violation
from tests.soak.notes import History
from tests.soak.plants import PLANTS
from tests.soak.run import Soak, summary

#: How many attempts around a violation are shown.
AROUND = 12


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Take locks of every kind in several processes while faults are drawn.",
    )
    parser.add_argument("--service", default="redis", choices=sorted(BACKENDS | TOPOLOGIES))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--forget", action="store_true", help="let the lock service lose its data, too")
    parser.add_argument(
        "--plant", default="", choices=sorted(PLANTS), help="plant a bug, which has to be found"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"{options.service}, {options.seconds:g} s, --seed {seed}", flush=True)
    with workspace() as directory, tempfile.TemporaryDirectory(prefix="distlock-soak-") as notes:
        place = directory / "service"
        place.mkdir()
        with open_lock_service(options.service, place) as url:
            soak = Soak(url, Path(notes), seed, forgets=options.forget, plant=options.plant)
            history, violations = soak.run(options.seconds, lambda line: print(line, flush=True))
    print(summary(history, violations))
    bad = [one for one in violations if not one.admitted]
    if bad:
        show(history, bad[0], soak.began)
    return 1 if bad else 0


def show(history: History, violation: Violation, began: float) -> None:
    """Print the first violation of a run that *began* then, with the attempts and the faults around it."""
    when = "at the end" if violation.at == math.inf else f"after {violation.at - began:.1f} s"
    print(f"First violation ({violation.rule}) {when}: {violation.said}")
    around = sorted(
        history.attempts, key=lambda attempt: abs((attempt.granted or attempt.asked) - violation.at)
    )
    name = violation.said.partition(":")[0]
    same = [attempt for attempt in around if attempt.name == name][:AROUND]
    for attempt in sorted(same, key=lambda attempt: attempt.asked):
        print(f"  {attempt}")
    for fault in history.faults:
        if abs(fault.began - violation.at) < 10:
            print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
