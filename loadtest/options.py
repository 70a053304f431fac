"""What can be asked of ``scripts/demo``, and what can't, with the reason."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import replace
from pathlib import Path

from demo_shop.configuration import IN_THE_DATABASE, NO_FOR_UPDATE
from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.museum.exhibits import EXHIBITS
from demo_shop.rush import WAYS
from loadtest import failover, outages, readers, rush, transactions
from loadtest.crowd import Crowd
from loadtest.databases import DATABASES, kind_of
from loadtest.lock_services import BACKENDS, TOPOLOGIES
from loadtest.scenario import ASYNC_FRAMEWORKS, FRAMEWORKS, QUART, Scenario, async_story, story, unlocked
from loadtest.visit import BUY, CART, VISITS

CROWD = Crowd()
#: Stands before a scenario, or alone.
UP = "up"
#: Fewer units than the page sends buyers, and a shop that thinks long enough to be watched.
UP_STOCK, UP_PAUSE = 20, 0.05
#: Its locks have a lease: the page can show what happens to a holder that stands still.
UP_BACKEND = "redis"
INSTANCES, TRANSACTIONS, FAILOVER = "instances", "transactions", "failover"
RUSH, READERS = "rush", "readers"
CROWDS = {
    INSTANCES: CROWD,
    TRANSACTIONS: transactions.CROWD,
    FAILOVER: failover.CROWD,
    RUSH: rush.CROWD,
    READERS: readers.CROWD,
}
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


def objection(options: argparse.Namespace) -> str:
    """Why this can't be run; "" if it can."""
    if options.is_async and (refused := object_to_async(options)):
        return refused
    if options.framework == QUART and not options.is_async:
        return f"--framework {QUART} has async views only: add --async"
    if options.matrix and (refused := object_to_matrix(options)):
        return refused
    if options.matrix and options.story == INSTANCES:
        return ""
    if options.story == TRANSACTIONS and (refused := object_to_transactions(options)):
        return refused
    if options.story == FAILOVER and (refused := object_to_failover(options)):
        return refused
    if options.story == RUSH and (refused := object_to_rush(options)):
        return refused
    if options.story == READERS and (refused := object_to_readers(options)):
        return refused
    slugs = [scenario.slug for scenario in told(options)]
    if unknown := sorted(set(options.scenarios) - set(slugs)):
        framework = options.framework or "django"
        asked = f"with --framework {framework} and --guard {options.guard} "
        if options.story != INSTANCES:
            asked = f"with --story {options.story} "
        elif (framework, options.guard) == ("django", DISTRIBUTED):
            asked = ""
        known = slugs if options.up else [UP, *slugs]
        return f"{asked}there is no scenario {unknown[0]!r}{_others(unknown[0], known)}"
    if not 0 <= options.port <= 65535:
        return f"there is no port {options.port}: choose one up to 65535"
    if options.up and len(options.scenarios) > 1:
        return f"up opens one shop. Say which: {', '.join(slugs)}"
    try:
        kind = kind_of(options.database or "sqlite")
    except ValueError as error:
        return str(error)
    if options.guard == "for-update" and kind == "sqlite":
        return f"--guard for-update: {NO_FOR_UPDATE}"
    if options.guard == "plain" and options.backend == IN_THE_DATABASE:
        return "--guard plain needs a lock service; in the database there is a lock only inside a transaction"
    service = options.guard.partition("-")[0]
    if options.guard in EXHIBITS and service in BACKENDS and service != options.backend:
        return f"--guard {options.guard} keeps its lock in {service}: add --backend {service}"
    if options.visit and VISITS[options.visit].in_redis and GUARDS[options.guard].way != "read_and_write":
        return (
            f"--visit {options.visit} has its stock in Redis, where --guard {options.guard} guards nothing: "
            "take a guard that is a lock, such as distributed"
        )
    return ""


def _others(unknown: str, known: list[str]) -> str:
    """What was meant perhaps, and what there is."""
    close = difflib.get_close_matches(unknown, known, n=1)
    meant = f". Did you mean {close[0]!r}? There" if close else "; there"
    return f"{meant} are: {', '.join(known)}"


def told(options: argparse.Namespace) -> tuple[Scenario, ...]:
    """The scenarios of the story that was asked for; where a shop is to be opened, also the unlocked one."""
    if options.story == TRANSACTIONS:
        return transactions.scenarios()
    if options.story == FAILOVER:
        return failover.scenarios(options.backend)
    framework = options.framework or "django"
    if options.story == RUSH:
        return rush.scenarios(framework)
    if options.story == READERS:
        return readers.scenarios(framework)
    scenarios = async_story(framework) if options.is_async else story(framework, options.guard)
    return (unlocked(framework, options.is_async), *scenarios) if options.up else scenarios


def opened_first(options: argparse.Namespace) -> str:
    """The scenario that ``up`` opens where none is named: what goes wrong, or the guard asked for."""
    if options.story == TRANSACTIONS:
        return transactions.scenarios()[0].slug
    pair = "mixed" if options.framework == "mixed" else "two"
    return f"{pair}-{'unlocked' if options.guard == DISTRIBUTED else options.guard}"


def object_to_async(options: argparse.Namespace) -> str:
    if options.framework not in (None, *ASYNC_FRAMEWORKS):
        return f"--async: in Flask an async view has a thread as any other. Take --framework {QUART}"
    if options.matrix or options.story != INSTANCES:
        return "--async tells the story of the instances: leave out --matrix and --story"
    if options.backend == IN_THE_DATABASE:
        return "--async awaits its lock, and a row of the database can't be awaited: take another --backend"
    if options.visit not in (None, BUY, CART):
        return f"--async has the visits {BUY} and {CART}: the other pages are the articles' own"
    if options.guard != DISTRIBUTED:
        return "--async shows the distributed lock, which can be awaited: leave out --guard"
    return ""


def object_to_transactions(options: argparse.Namespace) -> str:
    if options.backend not in (None, transactions.BACKEND):
        return f"--story transactions needs {transactions.BACKEND}, whose locks end when nobody renews them"
    try:
        kind = kind_of(options.database or transactions.DATABASE)
    except ValueError as error:
        return str(error)
    if kind != transactions.DATABASE:
        return f"--story transactions needs {transactions.DATABASE}, where COMMIT can be made to take a while"
    if options.framework not in (None, transactions.FRAMEWORK):
        return f"--story transactions is told in {transactions.FRAMEWORK}: leave out --framework"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED:
        return "--story transactions has guards and buyers of its own: leave out --guard and --visit"
    return ""


def object_to_failover(options: argparse.Namespace) -> str:
    if options.up:
        return "--story failover is run, judged and closed: leave out up"
    if options.backend not in (None, *outages.BACKENDS):
        return f"--story failover needs a lock service that goes on: {', '.join(outages.BACKENDS)}"
    if options.framework not in (None, failover.FRAMEWORK):
        return f"--story failover is told in {failover.FRAMEWORK}: leave out --framework"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED:
        return "--story failover has guards and buyers of its own: leave out --guard and --visit"
    return ""


def object_to_rush(options: argparse.Namespace) -> str:
    if options.up:
        return "--story rush is held, measured and closed: leave out up"
    if options.backend == IN_THE_DATABASE:
        return "--story rush compares a lock service with the database's own rows: take another --backend"
    if options.database not in (None, rush.DATABASE):
        return f"--story rush needs a {rush.DATABASE} of its own, whose COMMIT it slows down"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED or options.pause:
        return "--story rush has guards and buyers of its own: leave out --guard, --visit and --pause"
    return ""


def object_to_readers(options: argparse.Namespace) -> str:
    if options.up:
        return "--story readers is run, judged and closed: leave out up"
    if options.backend in readers.WITHOUT:
        return "--story readers needs a lock service with readers and permits: take another --backend"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED:
        return "--story readers has guards and visitors of its own: leave out --guard and --visit"
    return ""


def object_to_matrix(options: argparse.Namespace) -> str:
    if options.story not in (INSTANCES, READERS):
        return "--matrix shows the stories instances and readers: leave out this --story"
    if options.up or options.scenarios:
        return "--matrix runs scenarios of its own: name none, and choose with --backend, --database, …"
    if options.database and options.database not in DATABASES:
        return f"--matrix starts its own databases: choose one of {', '.join(DATABASES)}"
    if options.visit and not VISITS[options.visit].tells:
        return "--matrix shows the visits buy and cart"
    if options.guard != DISTRIBUTED:
        return "--matrix shows the distributed lock; leave out --guard"
    return ""
