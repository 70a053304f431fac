"""What can't be asked of ``scripts/demo``, with the reason."""

from __future__ import annotations

import argparse
import difflib

from demo_shop.configuration import IN_THE_DATABASE, NO_FOR_UPDATE
from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.museum.exhibits import EXHIBITS
from loadtest import failover, outages, readers, rush, transactions
from loadtest.databases import DATABASES, kind_of
from loadtest.lock_services import BACKENDS
from loadtest.scenario import ASYNC_FRAMEWORKS, QUART
from loadtest.stories import FAILOVER, INSTANCES, READERS, RUSH, TRANSACTIONS, UP, told
from loadtest.visit import BUY, CART, VISITS


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
