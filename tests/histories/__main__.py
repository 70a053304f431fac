"""``python -m tests.histories``: play every history of small scenes, and count them by mode and fault."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.histories import page, scenes
from tests.histories.page import short
from tests.histories.process import quiet
from tests.histories.scenes import MODES
from tests.histories.search import Found, Search
from tests.histories.services import FAMILIES


class Job(NamedTuple):
    """A family with a mode, and how far it is searched."""

    family: str
    mode: str
    large: bool
    whole: bool
    faults: int
    most: int


class Row(NamedTuple):
    """What a job has found, all its scenes together."""

    job: Job
    found: Found
    seconds: float


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/histories",
        description="Play every history of a few callers of one lock, with one fault anywhere.",
    )
    parser.add_argument("--family", action="append", choices=FAMILIES, help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    parser.add_argument("--large", action="store_true", help="three or four callers instead of two")
    parser.add_argument("--whole", action="store_true", help="let each call and its answer be one step")
    parser.add_argument("--faults", type=int, default=1, help="how many may come in one history")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="how many states of a scene at most")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes search")
    parser.add_argument("--write-docs", action="store_true", help="write the tables of the page about them")
    return parser


def main() -> int:
    given = options().parse_args()
    if given.write_docs:
        given.whole, given.family, given.mode = True, None, None
    jobs = [
        Job(family, mode, given.large, given.whole, given.faults, given.most)
        for family, mode in scenes.all_modes()
        if family in (given.family or FAMILIES) and mode in (given.mode or MODES)
    ]
    wrong = 0
    total, rows = Found(), []
    for row in played(jobs, given.jobs):
        print("\n".join(lines(row)), flush=True)
        add(total, row.found)
        rows.append(row)
        wrong += bool(row.found.wrong)
    print(f"In all: {counted(total)}; {wrong} violations")
    if given.write_docs and not wrong:
        write_docs(rows)
    return 1 if wrong else 0


def write_docs(rows: list[Row]) -> None:
    page.write("faults", ("fault", "states", "histories"), page.by_fault(rows[0].found))
    head = "model", "mode", "states", "histories", "events replayed", "seconds"
    page.write("modes", head, [cells(row) for row in rows])
    page.write("bugs", ("bug", "with the fault", "steps", "states", "seconds"), page.planted())


def cells(row: Row) -> page.Cells:
    found = row.found
    histories = short(found.histories.total())
    states = f"{found.states.total():,}", histories, f"{found.proved:,}"
    return row.job.family, row.job.mode, *states, f"{row.seconds:.0f}"


def played(jobs: list[Job], processes: int) -> Iterator[Row]:
    if processes == 1:
        yield from map(play, jobs)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap(play, jobs)


def play(job: Job) -> Row:
    began, total = time.process_time(), Found()
    family = FAMILIES[job.family]
    with quiet():
        for scene in scenes.of(family, job.mode, job.large):
            search = Search(family, scene, scenes.kinds(family), job.faults, job.most, job.whole)
            add(total, search.run())
            if total.wrong:
                break
    return Row(job, total, time.process_time() - began)


def add(total: Found, one: Found) -> None:
    """Add the figures of *one* to *total*. What is wrong is that of the first in which anything is."""
    total.states += one.states
    total.ends += one.ends
    total.histories += one.histories
    total.nodes += one.nodes
    total.played += one.played
    total.proved += one.proved
    total.cut += one.cut
    if not total.wrong:
        total.wrong, total.history = one.wrong, one.history


def lines(row: Row) -> Iterable[str]:
    yield f"{row.job.family}, {row.job.mode}: {counted(row.found)}, {row.seconds:.1f} s"
    for kind in row.found.states:
        states, histories = row.found.states[kind], row.found.histories[kind]
        yield f"    {kind or 'no fault':18} {states:10,} states {short(histories):>9} histories"
    if row.found.wrong:
        yield f"    WRONG: {row.found.wrong}"
        yield from (f"        {line}" for line in row.found.history)


def counted(found: Found) -> str:
    cut = f", {found.cut:,} states cut" if found.cut else ", nothing cut"
    return (
        f"{found.states.total():,} states, {short(found.histories.total())} histories{cut}, "
        f"{found.proved:,} events replayed"
    )


if __name__ == "__main__":
    sys.exit(main())
