"""``python -m loadtest`` runs a story or the matrix; ``… up SCENARIO`` only opens the scenario's shop."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import NoReturn

from demo_shop.configuration import Configuration
from loadtest import readers, rush, stories
from loadtest.matrix import MatrixProgress, MatrixTerms, conclusions, fill, plan
from loadtest.matrix import summary as matrix_summary
from loadtest.open_shop import keep_open, serve_sales
from loadtest.options import parse
from loadtest.readers import run_scenarios
from loadtest.report.documents import (
    as_json,
    matrix_as_json,
    open_file,
    rush_as_json,
    write_matrix,
    write_readers,
    write_report,
    write_rush,
)
from loadtest.report.terminal import SaleProgress, Teller, summary, where
from loadtest.run import SaleRun, run_scenario
from loadtest.rush import hold_sales
from loadtest.scenario import BUY, CART, FRAMEWORKS, VISITS, Scenario
from loadtest.servers.databases import DATABASES, SERVERS, kind_of, open_database
from loadtest.servers.lock_services import BACKENDS, open_lock_service
from loadtest.servers.processes import StackError, workspace
from loadtest.stack import Stack
from loadtest.stories import FAILOVER, READERS, RUSH, TRANSACTIONS, told
from loadtest.verdict import Conclusion

ALL_SHOWN, WRONG, INCONCLUSIVE, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130


def main(arguments: list[str] | None = None) -> int:
    try:
        options = parse(arguments)
    except SystemExit as end:
        # argparse's own status is 2, which would read as inconclusive.
        return COULD_NOT_RUN if end.code else ALL_SHOWN
    # SIGTERM has to raise SystemExit, so that we stop our servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if options.matrix:
            return show_matrix(options) if options.story != READERS else show_matrix_of_readers(options)
        if options.story == RUSH:
            return show_rush(options)
        if options.story == READERS:
            return show_readers(options)
        return open_shop(options) if options.up else tell_story(options)
    except StackError as error:
        print(f"The load test can't run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return INTERRUPTED


def tell_story(options: argparse.Namespace) -> int:
    scenarios = choose(told(options), options.scenarios)
    visit, crowd = options.visit, options.crowd
    shop = furnished(options)
    progress, runs = SaleProgress(), dict[str, SaleRun]()
    progress.open(crowd, visit, shop, options.backend, options.database)
    with servers(options) as (backend, database):
        for number, scenario in enumerate(scenarios, 1):
            progress.begin(number, len(scenarios), scenario, shop)
            progress.starting(scenario)
            control = runs[scenario.control].conclusion if scenario.control else None
            run = run_scenario(scenario, visit, shop, crowd, backend, database, control, progress.selling)
            service = scenario.outage.backend if scenario.outage else options.backend
            runs[scenario.slug] = replace(run, backend=service, database=options.database)
            progress.end(run)
    done = list(runs.values())
    print(json.dumps(as_json(done), indent=2) if options.json else f"\n{summary(done)}", flush=True)
    if options.report:
        options_of = (options.story, options.backend, kind_of(options.database), "async" * options.is_async)
        what = "-".join(filter(None, options_of))
        file = open_file(options.report, what)
        write_report(done, file)
        progress.say(f"\nThe report, with plots, is {file}: open it in a browser.", last=True)
    return exit_status(run.conclusion for run in done)


@contextmanager
def servers(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Start the servers that all scenarios share. Yield the lock service and the database."""
    # In the story of failovers, each scenario starts its own lock service, and its own database, in which no
    # other scenario has left fences.
    if options.database in SERVERS and options.story != FAILOVER:
        with (
            workspace() as directory,
            open_lock_service(options.backend, directory) as lock,
            open_database(options.database, directory) as database,
        ):
            yield lock, database
    else:
        yield options.backend, options.database


def furnished(options: argparse.Namespace) -> Configuration:
    shop: Configuration = options.visit.furnish(
        Configuration.from_environment(), options.stock, options.pause
    )
    return stories.with_short_lease(shop) if options.story == TRANSACTIONS else shop


def show_matrix(options: argparse.Namespace) -> int:
    matrix = plan(
        [VISITS[options.visit]] if options.visit else [VISITS[BUY], VISITS[CART]],
        [options.database] if options.database else DATABASES,
        [options.framework] if options.framework else FRAMEWORKS,
        [options.backend] if options.backend else list(BACKENDS),
    )
    progress = MatrixProgress()
    progress.open(matrix, options.crowd)
    terms = MatrixTerms(Configuration.from_environment(), options.crowd, options.stock, options.pause)
    fill(matrix, terms, progress)
    print(json.dumps(matrix_as_json(matrix), indent=2) if options.json else f"\n{matrix_summary(matrix)}")
    if options.report:
        file = open_file(options.report, "matrix")
        write_matrix(matrix, file)
        progress.say(f"\nThe report is {file}: open it in a browser.", last=True)
    return exit_status(conclusions(matrix))


def show_rush(options: argparse.Namespace) -> int:
    scenarios, shop, progress = choose(told(options), options.scenarios), furnished(options), SaleProgress()
    progress.open(options.crowd, options.visit, shop, options.backend, options.database)
    progress.starting(scenarios[0])
    runs = hold_sales(scenarios, options.backend, shop, options.crowd, progress.begin, progress.end)
    print(json.dumps(rush_as_json(runs), indent=2) if options.json else f"\n{rush.summary(runs)}")
    if options.report:
        file = open_file(options.report, f"{RUSH}-{options.framework}-{options.backend}")
        write_rush(runs, options.crowd, file)
        progress.say(f"\nThe report is {file}: open it in a browser.", last=True)
    return exit_status(run.conclusion for run in runs)


def show_readers(options: argparse.Namespace) -> int:
    done = read_story(options)
    as_json = readers.as_json(done, options.backend, options.database)
    print(json.dumps(as_json, indent=2) if options.json else f"\n{readers.summary(done)}")
    return exit_status(reading.conclusion for reading in done)


def show_matrix_of_readers(options: argparse.Namespace) -> int:
    """Tell the story of readers for each framework, on each lock service with shared locks and permits."""
    frameworks = [options.framework] if options.framework else list(FRAMEWORKS)
    backends = [options.backend] if options.backend else list(stories.READERS_BACKENDS)
    cells = readers.ReadersCells()
    for framework, backend in product(frameworks, backends):
        one = {**vars(options), "framework": framework, "backend": backend}
        cells[framework, backend] = read_story(argparse.Namespace(**one))
    if options.json:
        told = [readers.as_json(cells[cell], cell[1], options.database) for cell in cells]
        print(json.dumps({"summary": readers.in_every_cell(cells), "cells": told}, indent=2))
    else:
        print(f"\n{readers.matrix_summary(cells)}")
    return exit_status(reading.conclusion for done in cells.values() for reading in done)


def read_story(options: argparse.Namespace) -> list[readers.Reading]:
    """Tell the story of readers on one lock service, write its report, and return the readings."""
    scenarios, teller = choose(told(options), options.scenarios), Teller()
    shop = replace(furnished(options), products=stories.READERS_PRODUCTS)
    teller.say(f"{where(options.backend, options.database)} Framework: {options.framework}.", last=True)

    def begin(number: int, of: int, scenario: Scenario) -> None:
        teller.say(f"[{number}/{of}] {scenario.slug}: {scenario.title}", last=True)

    def end(reading: readers.Reading) -> None:
        teller.say(f"      {reading.outcome}. {readers.what_happened(reading)}", last=True, indent=6)

    done = run_scenarios(scenarios, options.backend, options.database, shop, options.crowd, begin, end)
    if options.report:
        file = open_file(options.report, f"{READERS}-{options.framework}-{options.backend}")
        write_readers(done, options.backend, options.database, file)
        teller.say(f"\nThe report is {file}: open it in a browser.", last=True)
    return done


def open_shop(options: argparse.Namespace) -> NoReturn:
    (scenario,) = (one for one in told(options) if one.slug == options.scenarios[0])
    visit = options.visit
    print(where(options.backend, options.database), flush=True)
    with Stack(
        scenario.instances,
        scenario.furnish(furnished(options)),
        options.backend,
        options.database,
        options.port,
        with_goods=visit.in_redis,
        sales=serve_sales,
    ) as stack:
        keep_open(scenario, visit, stack, options.crowd)


def choose(scenarios: tuple[Scenario, ...], wanted: list[str]) -> list[Scenario]:
    """Return the wanted scenarios, each after its control, without which a locked run proves nothing."""
    if not wanted:
        return list(scenarios)
    controls = {scenario.control for scenario in scenarios if scenario.slug in wanted}
    return [scenario for scenario in scenarios if scenario.slug in {*wanted, *controls}]


def exit_status(conclusions: Iterable[Conclusion]) -> int:
    found = set(conclusions)
    if Conclusion.WRONG in found:
        return WRONG
    return ALL_SHOWN if found == {Conclusion.SHOWN} else INCONCLUSIVE


if __name__ == "__main__":
    sys.exit(main())
