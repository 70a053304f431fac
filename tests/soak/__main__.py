"""``python -m tests.soak``: soak one lock service, and say what was wrong."""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter

from loadtest.servers.processes import workspace
from tests.soak.notes import History
from tests.soak.plants import PLANTS
from tests.soak.promises import Violation
from tests.soak.run import CALM, FAULTS_OF_WORKERS, PATIENCE, Soak, fault_names
from tests.soak.services.known import SERVICES, open_service
from tests.soak.services.service import FAULTS_OF_NETWORKS

#: Seconds after which the processes are replaced and their notes are judged.
ROUND = 60.0
#: How many attempts around a violation are shown.
AROUND = 12


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Take locks of every kind in several processes while faults are drawn.",
    )
    parser.add_argument("--service", default="redis", choices=sorted(SERVICES))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument(
        "--forget", action="store_true", help="let the lock service, one of Redis, lose its data, too"
    )
    workers, networks = ", ".join(FAULTS_OF_WORKERS), ", ".join(FAULTS_OF_NETWORKS)
    parser.add_argument(
        "--faults",
        default="",
        help=f"draw only these, with commas between them. Of processes: {workers}. "
        f"Of the network: {networks}. An unknown name, such as ?, lists all of the lock service",
    )
    parser.add_argument(
        "--plant", default="", choices=sorted(PLANTS), help="plant a bug, which has to be found"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help=f"seconds that a lock may be free while callers wait ({PATIENCE:g}); more if it is busy",
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"{options.service}, {options.seconds:g} s, --seed {seed}", flush=True)
    total: Counter[str] = Counter()
    with workspace() as directory:
        place = directory / "service"
        place.mkdir()
        with open_service(options.service, place) as service:
            if options.forget and not service.losing:
                parser.error(f"{options.service} loses no data in a soak: leave --forget out")
            only = frozenset(filter(None, options.faults.split(",")))
            if unknown := only - set(fault_names(service)):
                known = ", ".join(fault_names(service))
                parser.error(f"no fault of {options.service}: {', '.join(unknown)}. There are: {known}")
            for number in range(math.ceil(options.seconds / ROUND)):
                notes = directory / f"notes-{number}"
                notes.mkdir()
                seconds = min(ROUND, options.seconds - number * ROUND)
                soak = Soak(
                    service,
                    notes,
                    seed + number,
                    forgets=options.forget,
                    only=only,
                    calm=CALM + options.patience,
                    patience=options.patience,
                    plant=options.plant,
                )
                history, violations = soak.run(seconds)
                counts = count(history, violations)
                counts["waited"], counts["excused"] = round(soak.waited), round(soak.excused)
                total += counts
                print(f"{number * ROUND + seconds:5.0f} s: {sentence(counts)}", flush=True)
                if bad := [one for one in violations if not one.admitted]:
                    rules = Counter(one.rule for one in bad)
                    print(f"Violations: {', '.join(f'{times} {rule}' for rule, times in rules.items())}")
                    show(history, bad[0], soak.began - number * ROUND)
                    for one in bad[1:AROUND]:
                        print(f"Another ({one.rule}): {one.said}")
                    break
                for one in notes.iterdir():
                    one.unlink()
    print(f"In all: {sentence(total)}")
    return 1 if total["violations"] else 0


def count(history: History, violations: list[Violation]) -> Counter[str]:
    """Return how many attempts, grants, faults of each kind and violations there were."""
    admitted = sum(one.admitted for one in violations)
    counts = Counter(fault.what for fault in history.faults)
    counts["attempts"] = len(history.attempts)
    counts["grants"] = sum(attempt.granted is not None for attempt in history.attempts)
    counts["latches"] = len(history.latches)
    counts["admitted"], counts["violations"] = admitted, len(violations) - admitted
    return counts


def sentence(counts: Counter[str]) -> str:
    own = {"attempts", "grants", "latches", "admitted", "violations", "waited", "excused"}
    faults = [f"{times} {what}" for what, times in counts.most_common() if what not in own and times]
    return (
        f"{counts['grants']:,} grants of {counts['attempts']:,} attempts, {counts['latches']:,} calls of "
        f"latches; faults: {', '.join(faults) or 'none'}; faults excused a free lock "
        f"in {counts['excused']} of {counts['waited']} s of waiting; {counts['violations']} violations"
        + (f", {counts['admitted']} admitted" if counts["admitted"] else "")
    )


def show(history: History, violation: Violation, began: float) -> None:
    """Print the first violation of a soak that *began* then, with the attempts and the faults around it."""
    when = "at the end" if violation.at == math.inf else f"after {violation.at - began:.1f} s"
    print(f"First violation ({violation.rule}) {when}: {violation.said}")
    name = violation.said.partition(":")[0]
    same = [attempt for attempt in history.attempts if attempt.name == name]
    same.sort(key=lambda attempt: abs((attempt.granted or attempt.asked) - violation.at))
    for attempt in sorted(same[:AROUND], key=lambda attempt: attempt.asked):
        print(f"  {attempt}")
    for call in history.latches:
        if call.name == name and call.began <= violation.at:
            print(f"  {call}")
    for fault in history.faults:
        if abs(fault.began - violation.at) < 10:
            print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
