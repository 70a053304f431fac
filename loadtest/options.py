"""What can be asked of ``scripts/demo``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.rush import WAYS
from loadtest import failover, outages, readers, rush, transactions
from loadtest.databases import DATABASES
from loadtest.lock_services import BACKENDS, TOPOLOGIES
from loadtest.objections import objection
from loadtest.scenario import ASYNC_FRAMEWORKS, FRAMEWORKS, story
from loadtest.stories import CROWDS, FAILOVER, INSTANCES, READERS, RUSH, TRANSACTIONS, UP, opened_first
from loadtest.visit import BUY, VISITS

#: Fewer units than the page sends buyers, and a shop that thinks long enough to be watched.
UP_STOCK, UP_PAUSE = 20, 0.05
#: Its locks have a lease: the page can show what happens to a holder that stands still.
UP_BACKEND = "redis"
EPILOG = (
    "Exit status: 0 every scenario went as expected, 1 a locked shop oversold or a guarded one broke, "
    "2 inconclusive, 3 it could not be run."
)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.up = options.scenarios[:1] == [UP]
    options.scenarios = options.scenarios[options.up :]
    if options.up and not options.scenarios:
        options.scenarios = [opened_first(options)]
    if refused := objection(options):
        # Ten lines of usage would hide it.
        parser.exit(2, f"{parser.prog}: {refused}\n{parser.prog} --help tells of every option.\n")
    usual = CROWDS[options.story]
    options.crowd = replace(
        usual,
        users=usual.users if options.users is None else options.users,
        purchases=usual.purchases if options.purchases is None else options.purchases,
    )
    if options.story == TRANSACTIONS:
        options.backend = options.backend or transactions.BACKEND
        options.database = options.database or transactions.DATABASE
        options.framework = transactions.FRAMEWORK
        options.stock = transactions.STOCK if options.stock is None else options.stock
        options.pause = transactions.PAUSE if options.pause is None else options.pause
    if options.story == FAILOVER:
        options.database = options.database or failover.DATABASE
        options.framework = failover.FRAMEWORK
        options.stock = failover.STOCK if options.stock is None else options.stock
        options.pause = failover.PAUSE if options.pause is None else options.pause
    if options.story == RUSH:
        options.backend = options.backend or rush.BACKEND
        options.database = rush.DATABASE
        options.stock = rush.STOCK if options.stock is None else options.stock
    if options.story == READERS:
        options.backend = options.backend or (None if options.matrix else readers.BACKEND)
        options.database = options.database or "sqlite"
        options.stock = readers.STOCK if options.stock is None else options.stock
    if options.up and options.story == INSTANCES and options.visit in (None, BUY):
        options.stock = UP_STOCK if options.stock is None else options.stock
        options.pause = UP_PAUSE if options.pause is None else options.pause
    if not options.matrix or options.story == READERS:
        options.visit = VISITS[options.visit or BUY]
    if not options.matrix:
        if options.story != FAILOVER:
            options.backend = options.backend or (UP_BACKEND if options.up else "file")
        options.framework = options.framework or "django"
        options.database = options.database or "sqlite"
    return options


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Fifty buyers, one product: does the shop sell more than it has?",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"one or more of {', '.join(one.slug for one in story('django'))}; all if none is given. "
        "'up SCENARIO' opens only the shop of one, and keeps it open; 'up' alone that of two instances and "
        "no lock.",
    )
    add(
        "--story",
        choices=tuple(CROWDS),
        default=INSTANCES,
        help="instances: which lock is enough for how many of them (default). transactions: a lock that is "
        "released before COMMIT, and a holder that is stopped past its lease, with and without the fence; on "
        f"postgresql and redis. Its scenarios: {', '.join(one.slug for one in transactions.scenarios())}. "
        "failover: a lock service of several servers loses one, or is restarted, with and without the fence; "
        "on each of them unless --backend says otherwise. Its scenarios: "
        f"{', '.join(outage.slug for outage in outages.OUTAGES)}, each with -unfenced and -fenced. "
        "rush: how many units of one hot product are sold a second where COMMIT takes 5 ms, by the database "
        "itself, with distlock, and in batches; on postgresql, and redis unless --backend says otherwise. "
        f"Its scenarios: {', '.join(WAYS)}. readers: reports that are read while units are sold, and a "
        "payment gateway that takes five at a time, each with and without its guard; on redis unless "
        f"--backend says otherwise. Its scenarios: {', '.join(readers.TITLES)}",
    )
    add(
        "--matrix",
        action="store_true",
        help="the proof for each backend, database and framework; those options then choose some of it",
    )
    add(
        "--backend",
        choices=(*BACKENDS, *TOPOLOGIES),
        metavar="BACKEND",
        help=f"the lock service: {', '.join(BACKENDS)}, or one of several servers: {', '.join(TOPOLOGIES)} "
        "(default: file; redis with up)",
    )
    add("--database", help=f"{', '.join(DATABASES)}, or the URL of a server of yours (default: sqlite)")
    add(
        "--framework",
        choices=tuple(dict.fromkeys((*FRAMEWORKS, *ASYNC_FRAMEWORKS))),
        help="of the shop (default: django). The scenarios mixed-… run a Django and a Flask instance with "
        "any of them; mixed leaves out two-…, which mixed-… are then. quart is Flask's for --async",
    )
    add(
        "--async",
        dest="is_async",
        action="store_true",
        help="with async views, on uvicorn: of Django, or of Quart, for those of Flask have a thread each",
    )
    add("--visit", choices=VISITS, help="what each buyer does (default: buy)")
    guards = [slug for slug in GUARDS if slug not in ("none", "process")]
    add(
        "--guard",
        choices=guards,
        default=DISTRIBUTED,
        metavar="GUARD",
        help=f"of two instances: {', '.join(guards)} (default: distributed)",
    )
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write the report, an HTML page, here; in a directory it gets a file of its own",
    )
    add("--json", action="store_true", help="print the results as JSON")
    users, purchases = (
        "; ".join(f"{getattr(crowd, what)} with --story {story}" for story, crowd in CROWDS.items())
        for what in ("users", "purchases")
    )
    add("--users", type=int, help=f"buyers (default: {users})")
    add("--purchases", type=int, help=f"of each (default: {purchases})")
    stocks = ", ".join(f"{visit.stock} for {slug}" for slug, visit in VISITS.items())
    add("--stock", type=int, help=f"units of each product (default: {stocks}; {UP_STOCK} with up)")
    add("--pause", type=float, help="between read and write, in seconds")
    add("--port", type=int, default=0, help="of the shop, with up (default: any free one)")
    return parser
