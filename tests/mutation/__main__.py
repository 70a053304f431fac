"""``python -m tests.mutation``: change the code a little, and see whether a test notices."""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.mutation import lua_mutants, python_mutants
from tests.mutation.explained import explanations
from tests.mutation.mutant import Mutant
from tests.mutation.record import GROUPS, Recorded, record
from tests.mutation.tree import KEPT, ROOT, Tree
from tests.mutation.trial import KILLED, SURVIVED, TIMED_OUT, UNTESTED, Trials

#: The parts that are mutated: the files of each, and the groups of its tests, and further groups.
PARTS = {
    "lua": ("distlock/backends/redis/lua/*.lua", ["lua"], []),
    "engine": ("distlock/engine/*.py", ["engine", "core"], ["fence", "web"]),
    "fence": ("distlock/fence/*.py", ["fence", "rows"], ["web"]),
    "guard": ("distlock/web/guard*.py", ["web", "guarding"], ["sessions", "fence", "rows", "core"]),
}
RESULTS = KEPT / "results.jsonl"
EXPLAINED, NOT_PLAYED = "explained", "not played"
STATES = (KILLED, TIMED_OUT, EXPLAINED, SURVIVED, UNTESTED, NOT_PLAYED)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate", description="Change the code a little, and see whether a test notices."
    )
    parser.add_argument("--module", action="append", default=[], help="a file; may be given several times")
    parser.add_argument("--part", action="append", default=[], choices=sorted(PARTS), help="all its files")
    parser.add_argument("--lua", action="store_true", help="the scripts of Redis: --part lua")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="only play those again that survived")
    parser.add_argument("--try", action="append", default=[], dest="tried",
                        help="a test that no recording knows, as pytest names it")  # fmt: skip
    parser.add_argument("--record", action="append", default=[], choices=sorted(GROUPS),
                        help="note anew which test runs which line")  # fmt: skip
    parser.add_argument("--tests", type=int, default=150, help="at most so many tests of a mutant")
    parser.add_argument(
        "--budget", type=float, default=40.0, help="at most so many seconds of tests of a mutant"
    )
    parser.add_argument("--summary", action="store_true", help="only say what earlier runs have found")
    options = parser.parse_args()
    for group in options.record:
        record(group)
    files = chosen_files(options)
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    if options.sample:
        # What was played when a run is ended is a sample, too.
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    if not options.summary:
        play(mutants, options)
    return summarize(mutants)


def chosen_files(options: argparse.Namespace) -> list[str]:
    parts = options.part + ["lua"] * options.lua
    if not parts and not options.module:
        parts = [] if options.record else list(PARTS)
    found = [path for part in parts for path in sorted(ROOT.glob(PARTS[part][0]))]
    return [*options.module, *(path.relative_to(ROOT).as_posix() for path in found)]


def part_of(file: str) -> str:
    for part, (pattern, *_) in PARTS.items():
        if Path(file).match(pattern):
            return part
    sys.exit(f"{file} is in none of the parts {', '.join(PARTS)}.")


def mutants_of(file: str) -> list[Mutant]:
    text = (ROOT / file).read_text("utf-8")
    return (
        lua_mutants.mutants_of(file, text) if file.endswith(".lua") else python_mutants.mutants_of(file, text)
    )


def results() -> dict[str, dict[str, str]]:
    """Return what was found of each mutant, by its key; the newest finding counts."""
    if not RESULTS.exists():
        return {}
    lines = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    return {line["key"]: line for line in lines}


def play(mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Play the mutants without a result; with --again, those that survived or had no test instead.

    Survivors that `survivors.toml` explains are not played again.
    """
    # A background job of a shell ignores Ctrl-C otherwise.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    KEPT.mkdir(parents=True, exist_ok=True)
    lock = (KEPT / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("Another run is playing mutants in var/mutate.")
    known = results()
    wanted = {SURVIVED, UNTESTED} if options.again else {NOT_PLAYED}
    explained = explanations()
    tree = Tree(KEPT / "tree")
    tree.update()
    recorded = Recorded(tree.place)
    tried = ids_of(tree, options.tried) if options.tried else []
    recorded.seconds |= dict.fromkeys(tried, 0.0)
    for part, (_, near, far) in PARTS.items():
        todo = [
            mutant
            for mutant in mutants
            if part_of(mutant.path) == part
            and (known[mutant.key]["state"] if mutant.key in known else NOT_PLAYED) in wanted
            and not (mutant.key in known and any(one.fits(mutant) for one in explained))
        ]
        for group in [*near, *far] if todo else []:
            if not (KEPT / group).exists():
                sys.exit(f"Nothing is known of these tests yet. Run: scripts/mutate --record {group}")
        nearest = [path for group in near for path in GROUPS[group]]
        collected = nearest + [path for group in far for path in GROUPS[group]]
        mine = [test for test in tried if test.startswith(tuple(collected))]
        trials = Trials(
            tree,
            collected,
            recorded.seconds,
            options.tests,
            options.budget,
            nearest=tuple(nearest),
            tried=mine,
        )
        for key, result in known.items():
            if result["by"]:
                trials.note_killer(key.partition("\n")[0], result["by"])
        try:
            play_part(trials, recorded, todo, tuple(collected))
        finally:
            trials.close()


def ids_of(tree: Tree, tests: list[str]) -> list[str]:
    """Return pytest's ids of *tests*, each a file, a function or one of its variants."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *tests]
    said = subprocess.run(
        command, cwd=tree.place, env=tree.environment(), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return [line for line in said.splitlines() if "::" in line]


def play_part(trials: Trials, recorded: Recorded, todo: list[Mutant], collected: tuple[str, ...]) -> None:
    with RESULTS.open("a", encoding="utf-8") as kept:
        for number, mutant in enumerate(todo, 1):
            place = mutant.path, mutant.first, mutant.last
            cold = recorded.runs_before_tests(*place)
            tests = [test for test in recorded.tests_of(*place) if test.startswith(collected)]
            # All tests of the file may notice what runs before any test. They may also run a line of which no
            # recording knows: coverage.py sees nothing in a test that traces lines itself.
            more = [test for test in recorded.tests_of_file(mutant.path) if test.startswith(collected)]
            outcome = trials.play(mutant, tests, cold=cold, more=more if cold or not tests else ())
            kept.write(json.dumps({"key": mutant.key, **asdict(outcome)}) + "\n")
            kept.flush()
            if outcome.state not in (KILLED, TIMED_OUT):
                print(f"{outcome.state}, {number} of {len(todo)}: {told(mutant)}", flush=True)


def told(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.first} {mutant.function}\n{mutant.diff()}"


def summarize(mutants: list[Mutant]) -> int:
    """Print a row for each file and each part, and what was explained although it was killed."""
    known, explained = results(), explanations()
    rows: dict[str, Counter[str]] = {}
    left = 0
    for mutant in mutants:
        state = known[mutant.key]["state"] if mutant.key in known else NOT_PLAYED
        if any(one.fits(mutant) for one in explained):
            if state in (KILLED, TIMED_OUT):
                print(f"Explained in survivors.toml, but {state}: {told(mutant)}")
            elif state != NOT_PLAYED:
                state = EXPLAINED
        left += state in (SURVIVED, UNTESTED)
        for row in (mutant.path, f"in all, {part_of(mutant.path)}"):
            rows.setdefault(row, Counter())[state] += 1
    print(f"\n{'':42}{'mutants':>11}" + "".join(f"{state:>11}" for state in STATES))
    for name, row in sorted(rows.items()):
        print(f"{name[-42:]:42}{row.total():11}" + "".join(f"{row[state]:11}" for state in STATES))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
