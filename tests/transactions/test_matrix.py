"""The lock encloses COMMIT, and the fence commits nothing that was overtaken, in every arrangement.

Every cell is 16 requests of eight threads, or tasks, through the real handler on a real database: 10 pieces
are sold, 6 requests learn that there are no more. `-s` shows the table.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.databases import Databases
from tests.transactions.arrangement import GUARDS, OVERSELLS, SELLS
from tests.transactions.cells import RUNS, Run
from tests.transactions.till import Outcome

Judged = list[tuple[str, str, str, Outcome, str]]


@pytest.fixture(scope="module")
def judged(databases: Databases) -> Iterator[dict[Run, Future[Judged]]]:
    """All runs. A cell waits for COMMITs most of its time, so the databases are beside each other.

    Each framework has its own, in which its runs are one after the other.
    """
    places = dict.fromkeys((run.database, run.framework) for run in RUNS)
    with contextlib.ExitStack() as stack:
        pools = {place: stack.enter_context(ThreadPoolExecutor(1)) for place in places}
        urls = {place: databases(place[0], f"matrix_{place[1]}") for place in places}
        yield {
            run: pools[place].submit(judge, run, urls[place])
            for run in RUNS
            for place in [(run.database, run.framework)]
        }


def judge(run: Run, url: str) -> Judged:
    judged: dict[tuple[str, str], tuple[str, str, str, Outcome, str]] = {}
    cells = list(run.cells())
    # The buyers of a control may come one by one on a busy machine: once says nothing.
    for _ in range(3):
        for arrangement, guard, expected, outcome in run.outcomes(url, cells):
            wrong = run.complaint(outcome, expected, arrangement)
            judged[arrangement.name, guard] = (arrangement.name, guard, expected, outcome, wrong)
        cells = [cell for cell in cells if cell[2] == OVERSELLS and judged[cell[0].name, cell[1]][-1]]
        if not cells:
            break
    return list(judged.values())


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_in_every_arrangement_as_many_are_sold_as_there_are(
    run: Run, judged: dict[Run, Future[Judged]]
) -> None:
    cells = judged[run].result()
    print(f"\n{run}\n{table(cells)}")
    assert [f"{name} with {guard}: {wrong}" for name, guard, _, _, wrong in cells if wrong] == []


def table(cells: Judged) -> str:
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name, guard, expected, outcome, wrong in cells:
        if expected in {SELLS, OVERSELLS} or wrong:
            shown = f"sold {outcome.sold}"
        else:
            shown = "refused" if outcome.refusal else f"{outcome.answers.get('500', 0)} x 500"
        rows[name][guard] = f"{shown}{' WRONG' if wrong else ''}"
    head = f"{'':40}" + "".join(f"{guard:>14}" for guard in GUARDS)
    lines = [
        f"{name:40}" + "".join(f"{row.get(guard, ''):>14}" for guard in GUARDS) for name, row in rows.items()
    ]
    return "\n".join([head, *lines])
