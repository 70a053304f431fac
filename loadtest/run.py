"""One scenario, run: the stack comes up, Locust buys, and what was seen is gathered before the stack goes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo_shop.configuration import Configuration
from demo_shop.ledger import Ledger
from loadtest.child import Child, StackError
from loadtest.scenario import Scenario
from loadtest.stack import ROOT, Stack
from loadtest.verdict import SOLD, Conclusion, Figures, Verdict, conclude, judge

LONGEST_SALE = 120.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many buyers, and how often each buys."""

    users: int = 50
    purchases: int = 10

    @property
    def requests(self) -> int:
        return self.users * self.purchases


@dataclass(frozen=True, slots=True)
class Run:
    """What one scenario did, and what it means."""

    scenario: Scenario
    backend: str
    figures: Figures
    verdict: Verdict
    conclusion: Conclusion
    #: From the first request to the last answer, seconds.
    duration: float
    #: Unix time at which all buyers started.
    began: float
    #: One row for each answer, as `loadtest.locustfile` writes it.
    rows: list[dict[str, Any]]
    ledger: Ledger
    #: Where the servers' logs were kept, if anything was odd.
    logs: Path | None = None


def run_scenario(
    scenario: Scenario,
    shop: Configuration,
    crowd: Crowd,
    backend: str,
    database: str = "sqlite",
    control: Conclusion | None = None,
    progress: Callable[[Ledger], None] = lambda ledger: None,
) -> Run:
    with Stack(scenario.instances, replace(shop, guard=scenario.guard), backend, database) as stack:
        record = load(stack, crowd, progress)
        ledger, rows = stack.ledger(), record["rows"]
        figures = figures_of(shop.stock, crowd, stack.names, rows, ledger)
        verdict = judge(figures)
        logs = stack.keep_logs(scenario.slug) if verdict.doubts else None
    return Run(
        scenario,
        backend,
        figures,
        verdict,
        conclude(scenario.must_be, figures, verdict, control),
        max((row["at"] + row["ms"] / 1000 for row in rows), default=0.0),
        record["began"],
        rows,
        ledger,
        logs,
    )


def load(stack: Stack, crowd: Crowd, progress: Callable[[Ledger], None]) -> dict[str, Any]:
    """Let the crowd in. Locust runs as a process of its own, because it patches the one that it is in."""
    record, log = stack.directory / "record.json", stack.directory / "locust.log"
    locust = Child("locust", locust_command(stack.url, crowd, record), log)
    try:
        deadline = time.monotonic() + LONGEST_SALE
        while True:
            try:
                locust.process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                progress(stack.ledger())
            if time.monotonic() > deadline:
                raise StackError(f"The sale did not end within {LONGEST_SALE:.0f} s.")
        progress(stack.ledger())
        if not record.exists():
            raise StackError(f"Locust did not run. It said: {locust.last_words()}")
        found: dict[str, Any] = json.loads(record.read_text())
        return found
    finally:
        locust.stop()


def locust_command(url: str, crowd: Crowd, record: Path) -> list[str]:
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py"), "--headless"]
    command += ["--host", url, "--users", str(crowd.users), "--spawn-rate", str(crowd.users)]
    return [*command, "--purchases", str(crowd.purchases), "--record", str(record), "--only-summary"]


def figures_of(
    initial: int, crowd: Crowd, instances: tuple[str, ...], rows: list[dict[str, Any]], ledger: Ledger
) -> Figures:
    sold = [row for row in rows if row["status"] == SOLD]
    known = {order.number for order in ledger.orders}
    return Figures(
        initial=initial,
        final=ledger.stock,
        orders=len(ledger.orders),
        requests=crowd.requests,
        answers=dict(Counter(row["status"] for row in rows)),
        refused=sum(str(row["code"]).startswith("lock_") for row in rows),
        lost_orders=sum(row["order"] not in known for row in sold),
        sold_by=dict(Counter(str(row["instance"]) for row in sold)),
        instances=instances,
    )
