"""``python -m bench``: what locks cost and how they pass on, beside what one would use instead.

The rounds of all take turns, so that whatever else the machine does slows each. Medians are printed with
the smallest and the largest. A ratio is the median of those of the rounds. Whether the lock excludes, and
its fence grows, is checked in each round; a violation makes a row void.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.bench import Bench
from bench.crew import BenchError
from bench.java_crew import versions
from bench.plots import svg
from bench.report import as_json, markdown
from bench.rows import ROWS
from bench.services import Services
from bench.table import Table
from demo_shop.configuration import VAR
from loadtest.child import StackError

#: Exit codes: a target was missed or a row is void; it could not be measured.
MISSED, BROKEN = 1, 3


def about_rows() -> str:
    """What each measures, as its file says it."""
    told = {
        row: str(sys.modules[measure.__module__].__doc__).splitlines()[0] for row, measure in ROWS.items()
    }
    return "\n".join(
        f"  {row}\n{textwrap.fill(words, 80, initial_indent='    ', subsequent_indent='    ')}"
        for row, words in told.items()
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
    parser.add_argument("--quick", action="store_true", help="what carries a target, in under three minutes")
    parser.add_argument("--rounds", type=int, help="of each measurement (default: 5; with --quick 3)")
    parser.add_argument("--seconds", type=float, help="of each contest (default: 3; with --quick 0.5)")
    parser.add_argument("--pairs", type=int, help="in a round without contention (default: 1000; quick 300)")
    parser.add_argument("--beside", action="append", metavar="PEER", help="only these peers; may be repeated")
    parser.add_argument("--java", action="store_true", help="Redisson and Curator, too: a JDK and Maven")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--to", type=Path, default=VAR / "bench", help="where the results are kept, too")
    words = parser.parse_args(arguments)
    for row in words.rows:
        if row not in ROWS:
            parser.error(f"{row} is none of {', '.join(ROWS)}.")
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    words = parse(arguments)
    tables: list[Table] = []
    broken = False
    with Services() as services:
        bench = Bench(
            services,
            rounds=words.rounds or (3 if words.quick else 5),
            seconds=words.seconds or (0.5 if words.quick else 3.0),
            pairs=words.pairs or (300 if words.quick else 1000),
            quick=words.quick,
            beside=words.beside,
            java=words.java,
        )
        about = machine.about()
        if words.java:
            about["Java"] = versions()
        if not words.json:
            print("\n".join(f"- {what}: {which}" for what, which in about.items()), end="\n\n", flush=True)
        for row in words.rows or ROWS:
            try:
                for table in ROWS[row](bench):
                    tables.append(table)
                    broken |= bool(table.lost)
                    if not words.json:
                        print(markdown(table), flush=True)
            except Exception as error:  # What one row can't do costs no other.
                broken = True
                if not isinstance(error, BenchError | StackError):
                    traceback.print_exc()
                print(f"{row} could not be measured. {error}", file=sys.stderr, flush=True)
    written = as_json(tables, about)
    if words.json:
        print(written)
    keep(words.to, tables, written, about)
    return BROKEN if broken else MISSED if any(table.failed for table in tables) else 0


def keep(folder: Path, tables: Sequence[Table], written: str, about: dict[str, str]) -> None:
    """The whole of a run, where the last one was."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    pages = [
        "# distlock beside other locks",
        "\n".join(f"- {what}: {which}" for what, which in about.items()),
    ]
    for number, table in enumerate(tables, 1):
        picture = f"{number:02}-{table.row}.svg"
        (folder / picture).write_text(svg(table), encoding="utf-8")
        pages += [markdown(table).rstrip(), f"![{table.title}]({picture})"]
    (folder / "bench.json").write_text(written, encoding="utf-8")
    (folder / "bench.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")


if __name__ == "__main__":
    # Its servers end, too, where it is asked to end from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nStopped.")
