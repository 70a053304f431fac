"""The sales of a rush, held one after the other in one stack: the same instances, servers and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from demo_shop.configuration import Configuration
from loadtest.crowd import Crowd
from loadtest.lock_services import open_lock_service
from loadtest.postgresql import OPTIONS, running_postgresql
from loadtest.run import Run, hold_sale
from loadtest.rush import COMMIT_PAUSE, DATABASE, visit
from loadtest.scenario import Scenario
from loadtest.stack import Stack
from loadtest.workspace import workspace


@contextmanager
def slow_postgresql() -> Iterator[str]:
    """The URL of a server in which each COMMIT takes `COMMIT_PAUSE` longer, as for a disk or a replica.

    ``commit_delay`` is waited with the rows still locked, once for each COMMIT, and where it is durable.
    One that comes meanwhile is written along, as on a disk.
    """
    slow = {"fsync": "on", "commit_siblings": "0", "commit_delay": f"{COMMIT_PAUSE * 1e6:.0f}"}
    with running_postgresql(OPTIONS | slow) as url:
        yield url


def hold_sales(
    scenarios: Sequence[Scenario],
    backend: str,
    shop: Configuration,
    crowd: Crowd,
    begin: Callable[[int, int, Scenario, Configuration], None],
    end: Callable[[Run], None],
) -> list[Run]:
    """Run a sale for each guard. *begin* and *end* are told how far it is.

    Counting the orders meanwhile would take from what is measured.
    """
    runs: dict[str, Run] = {}
    with (
        workspace() as directory,
        open_lock_service(backend, directory) as lock,
        slow_postgresql() as database,
        Stack(scenarios[0].instances, shop, lock, database) as stack,
    ):
        for number, scenario in enumerate(scenarios, 1):
            begin(number, len(scenarios), scenario, shop)
            stack.restock()
            control = runs[scenario.control].conclusion if scenario.control else None
            run = hold_sale(stack, stack.front, scenario, visit(scenario), crowd, control, progress=None)
            runs[scenario.slug] = replace(run, backend=backend, database=DATABASE)
            end(runs[scenario.slug])
    return list(runs.values())
