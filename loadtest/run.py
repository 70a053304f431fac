"""Run one scenario: start the stack, let Locust buy, and collect the results before the stack ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from demo_shop.configuration import Configuration
from demo_shop.sale import Ledger
from loadtest.moments import (
    InstanceStopper,
    Moment,
    ServiceStriker,
    StoppedPurchase,
    early_releases,
    read_moments,
)
from loadtest.scenario import BuyerCrowd, Scenario, Visit
from loadtest.servers.lock_services import Outage
from loadtest.servers.processes import ChildProcess, StackError, workspace
from loadtest.stack import ROOT, Front, Stack
from loadtest.verdict import SOLD, Absence, Conclusion, Figures, Shelf, Stall, Verdict, conclude, judge

LONGEST_SALE = 120.0


@dataclass(frozen=True, slots=True)
class SaleRun:
    """The results of one scenario, and what they mean."""

    scenario: Scenario
    visit: Visit
    backend: str
    database: str
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
    #: The directory of the servers' logs, which are kept if there are doubts.
    logs: Path | None = None
    #: The moments that the instances noted, if the scenario needs them.
    moments: tuple[Moment, ...] = ()
    stopped: StoppedPurchase | None = None


def run_scenario(
    scenario: Scenario,
    visit: Visit,
    shop: Configuration,
    crowd: BuyerCrowd,
    backend: str,
    database: str = "sqlite",
    control: Conclusion | None = None,
    progress: Callable[[Ledger], None] = lambda ledger: None,
) -> SaleRun:
    """Open a shop for *scenario*, hold one sale in it, and close it."""
    shop, journal = scenario.furnish(shop), scenario.is_timed
    with ExitStack() as opened:
        stopper = None
        if scenario.stop:
            # The stack gives the first instance this name.
            first = f"{scenario.instances[0]}-1"
            stopper = InstanceStopper(scenario.stop, first)
            if scenario.outage:
                directory = opened.enter_context(workspace())
                struck = opened.enter_context(scenario.outage.open(directory))
                stopper = ServiceStriker(struck, scenario.outage.forgets, scenario.stop, first)
                backend = struck.url
            opened.enter_context(stopper)
            shop = replace(shop, stall=stopper.where)
        stack = Stack(scenario.instances, shop, backend, database, 0, visit.in_redis, journal)
        opened.enter_context(stack)
        return hold_sale(stack, stack.front, scenario, visit, crowd, control, progress, stopper)


def hold_sale(
    stack: Stack,
    front: Front,
    scenario: Scenario,
    visit: Visit,
    crowd: BuyerCrowd,
    control: Conclusion | None,
    progress: Callable[[Ledger], None] | None,
    stopper: InstanceStopper | None = None,
) -> SaleRun:
    """Hold one sale in an open shop. *progress*: gets the orders during the sale; None: they are not read."""
    with stopper.beside(stack) if stopper else nullcontext():
        record = load(stack, front, visit, crowd, progress)
    ledger, rows, stopped = stack.ledger(), record["rows"], stopper.stopped if stopper else None
    moments, outage = read_moments(stack.shop.journal), scenario.outage
    # If the service remembers the hold after an outage, the lock stays with its holder.
    stops = outage.forgets if outage else scenario.stop is not None
    figures = replace(
        figures_of(visit, stack.shop.stock, crowd, front.names, rows, ledger),
        ended=record["ended"],
        early_releases=early_releases(moments) if scenario.atomic_requests else None,
        stops=stops,
        stall=stall_of(stopped, stack.shop.lock_ttl, moments, rows, ledger) if stopped and stops else None,
        absence=absence_of(outage, stopped, stack.shop.lock_ttl, moments) if outage else None,
    )
    verdict = judge(figures)
    return SaleRun(
        scenario,
        visit,
        stack.backend,
        stack.database,
        figures,
        verdict,
        conclude(scenario.must_be, figures, verdict, control),
        max((row["at"] + row["ms"] / 1000 for row in rows), default=0.0),
        record["began"],
        rows,
        ledger,
        stack.keep_logs(f"{visit.slug}-{scenario.slug}") if verdict.doubts else None,
        moments,
        # An outage stops no instance.
        None if outage else stopped,
    )


def load(
    stack: Stack, front: Front, visit: Visit, crowd: BuyerCrowd, progress: Callable[[Ledger], None] | None
) -> dict[str, Any]:
    """Let the crowd buy. Locust runs in its own process, because gevent patches the process that it is in."""
    record, log = stack.directory / "record.json", stack.directory / "locust.log"
    record.unlink(missing_ok=True)
    locust = ChildProcess("locust", locust_command(front.url, visit, crowd, record), log)
    try:
        deadline, ended = time.monotonic() + LONGEST_SALE, False
        while not ended and time.monotonic() < deadline:
            try:
                locust.process.wait(0.2)
                ended = True
            except subprocess.TimeoutExpired:
                if progress:
                    progress(stack.ledger())
        # If Locust takes too long, it is stopped, and still writes its record. Then this run is inconclusive,
        # but the next runs can go on.
        locust.stop()
        if progress:
            progress(stack.ledger())
        if record.exists():
            found: dict[str, Any] = json.loads(record.read_text())
            return found | {"ended": ended}
        if ended:
            raise StackError(f"Locust did not run. It said: {locust.last_words()}")
        return {"began": 0.0, "rows": [], "ended": False}
    finally:
        locust.stop()


def locust_command(url: str, visit: Visit, crowd: BuyerCrowd, record: Path) -> list[str]:
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py"), "--headless"]
    command += ["--host", url, "--users", str(crowd.users), "--spawn-rate", str(crowd.users)]
    command += ["--visit", visit.slug, "--products", str(visit.products)]
    command += ["--purchases", str(crowd.purchases), "--pause", str(crowd.pause)]
    return [*command, "--record", str(record), "--only-summary"]


def figures_of(
    visit: Visit,
    initial: int,
    crowd: BuyerCrowd,
    instances: tuple[str, ...],
    rows: list[dict[str, Any]],
    ledger: Ledger,
) -> Figures:
    sold = Counter[int]()
    for order in ledger.orders:
        sold[order.product] += order.quantity
    known = {order.number for order in ledger.orders}
    told = [row["order"] for row in rows if row["status"] == SOLD] if visit.tells else []
    return Figures(
        shelves={product: Shelf(initial, left, sold[product]) for product, left in ledger.left.items()},
        requests=crowd.requests,
        answers=dict(Counter(row["status"] for row in rows)),
        refused=sum(is_refusal(row["code"]) for row in rows),
        lost_orders=sum(number not in known for number in told),
        untold_orders=len(known.difference(told)) if visit.tells else 0,
        sold_by=dict(Counter(order.instance for order in ledger.orders)),
        served_by=dict(Counter(str(row["instance"]) for row in rows if row["status"])),
        instances=instances,
    )


def stall_of(
    stopped: StoppedPurchase,
    ttl: float,
    moments: Sequence[Moment],
    rows: list[dict[str, Any]],
    ledger: Ledger,
) -> Stall:
    answer = next((row for row in rows if row["purchase"] == stopped.purchase), None)
    meanwhile = [moment for moment in moments if stopped.since < moment.at < stopped.until]
    others = [moment.what for moment in meanwhile if moment.purchase != stopped.purchase]
    units = Counter(order.stock_seen for order in ledger.orders)
    mine = [order.stock_seen for order in ledger.orders if answer and order.number == answer["order"]]
    return Stall(
        seconds=stopped.until - stopped.since,
        ttl=ttl,
        passed_on="granted" in others,
        sold_meanwhile=others.count("committed"),
        status=answer["status"] if answer else 0,
        code=answer["code"] if answer else None,
        resold=sum(units[unit] - 1 for unit in mine),
    )


def absence_of(
    outage: Outage, struck: StoppedPurchase | None, ttl: float, moments: Sequence[Moment]
) -> Absence:
    """Return the longest time without a grant of the lock, from the outage on, and how long it may be."""
    expected = ttl + outage.takes
    if struck is None:
        return Absence(None, expected)
    granted = [moment.at for moment in moments if moment.what == "granted" and moment.at > struck.since]
    # If the service forgets, the purchase inside keeps the next one waiting in the database, so that only the
    # first grant tells when the service was back.
    shown = [struck.since, *(granted[:1] if outage.forgets else granted)]
    gaps = [after - before for before, after in pairwise(shown)]
    return Absence(max(gaps, default=None), expected)


def is_refusal(code: str | None) -> bool:
    """Return whether *code* says that the guard turned the buyer away, in distlock's codes or the shop's."""
    return code == "overtaken" or str(code).startswith("lock_")
