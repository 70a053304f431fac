"""``python -m bench``: what distlock costs and how fast it hands off, beside what one would use instead.

The rounds of all contestants take turns, so that whatever else the machine does slows down all of them. Each
median is printed with the smallest and the largest figure. A ratio is the median of the rounds' ratios. Each
round checks that the lock excludes and its fence grows; a violation makes a row void.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from bench import page
from bench.bench import QUICK, WHOLE, Bench
from bench.crew import BenchError, java_versions
from bench.report import as_json, head, read_run, summary
from bench.rows import QUICK_ROWS, ROWS
from bench.run import BenchRun, describe_machine, say
from bench.services import Services
from demo_shop.configuration import VAR

#: Exit codes: a target was missed or a row is void; something could not be measured.
MISSED, BROKEN = 1, 3
WRITTEN = "docs/explanation/performance*.md"


def about_rows() -> str:
    """Return the rows and what each measures, for ``--help``."""
    return "\n".join(
        f"  {name}\n{textwrap.fill(row.about, 80, initial_indent='    ', subsequent_indent='    ')}"
        for name, row in ROWS.items()
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"rows:\n{about_rows()}\n\n"
        f"Exit code {MISSED}: a target is missed, or a row void. {BROKEN}: one could not be measured.",
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="of those below; default: all")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="what carries a target, without chaos-zookeeper, in under three minutes",
    )
    for name, kind, what in (
        ("rounds", int, "of each measurement"),
        ("seconds", float, "of each contest"),
        ("pairs", int, "in a round without contention"),
    ):
        usual = f"default: {getattr(WHOLE, name):g}; with --quick {getattr(QUICK, name):g}"
        parser.add_argument(f"--{name}", type=kind, help=f"{what} ({usual})")
    parser.add_argument("--beside", action="append", metavar="PEER", help="only these peers; may be repeated")
    parser.add_argument("--java", action="store_true", help="Redisson and Curator, too: a JDK and Maven")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--to", type=Path, default=VAR / "bench", help="where the results are kept, too")
    parser.add_argument(
        "--write-docs",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help=f"measure nothing: write the figures of runs that were kept there into {WRITTEN}",
    )
    words = parser.parse_args(arguments)
    for row in words.rows:
        if row not in ROWS:
            parser.error(f"{row} is none of {', '.join(ROWS)}.")
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    words = parse(arguments)
    if words.write_docs is not None:
        return write_docs(words.write_docs or [words.to])
    with Services() as services:
        run = begin(words, services)
        try:
            run.carry_out()
        except (KeyboardInterrupt, SystemExit):
            say(f"\nStopped in row {len(run.took) + 1} of {len(run.rows)}. {run.kept}")
            raise
    print(as_json(run.tables, run.about) if words.json else summary(run.tables))
    say(run.kept)
    return BROKEN if run.broken else MISSED if any(table.failed for table in run.tables) else 0


def write_docs(folders: Sequence[Path]) -> int:
    try:
        page.write([read_run(folder) for folder in folders])
    except BenchError as error:
        say(str(error))
        return BROKEN
    say(f"{WRITTEN} have the figures of {', '.join(map(str, folders))}.")
    return 0


def begin(words: argparse.Namespace, services: Services) -> BenchRun:
    usual = QUICK if words.quick else WHOLE
    bench = Bench(
        services,
        rounds=words.rounds or usual.rounds,
        seconds=words.seconds or usual.seconds,
        pairs=words.pairs or usual.pairs,
        quick=words.quick,
        beside=words.beside,
        java=words.java,
    )
    about = describe_machine() | {"asked for": f"{bench.rounds} rounds of {bench.seconds:g} s"}
    if words.java:
        about["Java"] = java_versions()
    if not words.json:
        print(head(about, whole=True), end="\n\n", flush=True)
    rows = words.rows or (QUICK_ROWS if words.quick else list(ROWS))
    return BenchRun(
        bench, rows, about, words.to, lambda table: None if words.json else print(table, flush=True)
    )


if __name__ == "__main__":
    # SIGTERM has to raise SystemExit, so that the servers of a run end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
