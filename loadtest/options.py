"""The options of ``scripts/demo``, and why some combinations are refused."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import replace
from pathlib import Path

from demo_shop.configuration import IN_THE_DATABASE, NO_FOR_UPDATE
from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.museum.exhibits import EXHIBITS
from loadtest.scenario import ASYNC_FRAMEWORKS, BUY, CART, FRAMEWORKS, QUART, VISITS, story
from loadtest.servers.databases import DATABASES, kind_of
from loadtest.servers.lock_services import BACKENDS, OUTAGES, STRUCK_BACKENDS, TOPOLOGIES
from loadtest.stories import (
    FAILOVER,
    INSTANCES,
    READERS,
    READERS_TITLES,
    READERS_WITHOUT,
    RUSH,
    RUSH_WAYS,
    STORIES,
    TRANSACTIONS,
    UP,
    opened_first,
    told,
    transactions_scenarios,
)


def objection(options: argparse.Namespace) -> str:
    """Return why these options can't be run; "" if they can."""
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
    """Return the end of a sentence: what was perhaps meant instead of *unknown*, and all that is *known*."""
    close = difflib.get_close_matches(unknown, known, n=1)
    meant = f". Did you mean {close[0]!r}? There" if close else "; there"
    return f"{meant} are: {', '.join(known)}"


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
    usual = STORIES[TRANSACTIONS]
    if options.backend not in (None, usual.backend):
        return f"--story transactions needs {usual.backend}, whose locks end when nobody renews them"
    try:
        kind = kind_of(options.database) if options.database else usual.database
    except ValueError as error:
        return str(error)
    if kind != usual.database:
        return f"--story transactions needs {usual.database}, where COMMIT can be made to take a while"
    if options.framework not in (None, usual.framework):
        return f"--story transactions is told in {usual.framework}: leave out --framework"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED:
        return "--story transactions has guards and buyers of its own: leave out --guard and --visit"
    return ""


def object_to_failover(options: argparse.Namespace) -> str:
    if options.up:
        return "--story failover is run, judged and closed: leave out up"
    if options.backend not in (None, *STRUCK_BACKENDS):
        return f"--story failover needs a lock service that goes on: {', '.join(STRUCK_BACKENDS)}"
    if options.framework not in (None, framework := STORIES[FAILOVER].framework):
        return f"--story failover is told in {framework}: leave out --framework"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED:
        return "--story failover has guards and buyers of its own: leave out --guard and --visit"
    return ""


def object_to_rush(options: argparse.Namespace) -> str:
    if options.up:
        return "--story rush is held, measured and closed: leave out up"
    if options.backend == IN_THE_DATABASE:
        return "--story rush compares a lock service with the database's own rows: take another --backend"
    if options.database not in (None, database := STORIES[RUSH].database):
        return f"--story rush needs a {database} of its own, whose COMMIT it slows down"
    if options.visit not in (None, BUY) or options.guard != DISTRIBUTED or options.pause:
        return "--story rush has guards and buyers of its own: leave out --guard, --visit and --pause"
    return ""


def object_to_readers(options: argparse.Namespace) -> str:
    if options.up:
        return "--story readers is run, judged and closed: leave out up"
    if options.backend in READERS_WITHOUT:
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


#: The stock and the pause (seconds) with ``up``: fewer units than buyers, and purchases slow enough to watch.
UP_STOCK, UP_PAUSE = 20, 0.05
#: With ``up`` locks have a lease, so that the page can show what happens to a stopped holder.
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
        # parser.error() would print ten lines of usage, which hide the reason.
        parser.exit(2, f"{parser.prog}: {refused}\n{parser.prog} --help tells of every option.\n")
    usual = STORIES[options.story]
    options.crowd = replace(
        usual.crowd,
        users=usual.crowd.users if options.users is None else options.users,
        purchases=usual.crowd.purchases if options.purchases is None else options.purchases,
    )
    # The matrix of readers runs on all lock services.
    options.backend = options.backend or (None if options.matrix else usual.backend)
    options.database = options.database or usual.database
    options.framework = options.framework or usual.framework
    options.stock = usual.stock if options.stock is None else options.stock
    options.pause = usual.pause if options.pause is None else options.pause
    if options.story == READERS:
        options.database = options.database or "sqlite"
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
        choices=tuple(STORIES),
        default=INSTANCES,
        help="instances: which lock is enough for how many of them (default). transactions: a lock that is "
        "released before COMMIT, and a holder that is stopped past its lease, with and without the fence; on "
        f"postgresql and redis. Its scenarios: {', '.join(one.slug for one in transactions_scenarios())}. "
        "failover: a lock service of several servers loses one, or is restarted, with and without the fence; "
        "on each of them unless --backend says otherwise. Its scenarios: "
        f"{', '.join(outage.slug for outage in OUTAGES)}, each with -unfenced and -fenced. "
        "rush: how many units of one hot product are sold a second where COMMIT takes 5 ms, by the database "
        "itself, with distlock, and in batches; on postgresql, and redis unless --backend says otherwise. "
        f"Its scenarios: {', '.join(RUSH_WAYS)}. readers: reports that are read while units are sold, and a "
        "payment gateway that takes five at a time, each with and without its guard; on redis unless "
        f"--backend says otherwise. Its scenarios: {', '.join(READERS_TITLES)}",
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
        "; ".join(f"{getattr(usual.crowd, what)} with --story {story}" for story, usual in STORIES.items())
        for what in ("users", "purchases")
    )
    add("--users", type=int, help=f"buyers (default: {users})")
    add("--purchases", type=int, help=f"of each (default: {purchases})")
    stocks = ", ".join(f"{visit.stock} for {slug}" for slug, visit in VISITS.items())
    add("--stock", type=int, help=f"units of each product (default: {stocks}; {UP_STOCK} with up)")
    add("--pause", type=float, help="between read and write, in seconds")
    add("--port", type=int, default=0, help="of the shop, with up (default: any free one)")
    return parser
