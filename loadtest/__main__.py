"""``python -m loadtest``: run the story. ``python -m loadtest up SCENARIO``: only open its shop."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from demo_shop.configuration import Configuration
from loadtest.child import StackError
from loadtest.databases import DATABASES, kind_of
from loadtest.lock_services import BACKENDS
from loadtest.record import as_json
from loadtest.report import write_report
from loadtest.run import Crowd, Run, run_scenario
from loadtest.scenario import FRAMEWORKS, STORY, Scenario, story
from loadtest.stack import Stack
from loadtest.terminal import Progress, summary
from loadtest.up import keep_open
from loadtest.verdict import Conclusion

ALL_SHOWN, WRONG, INCONCLUSIVE, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130


def parse(arguments: list[str] | None) -> argparse.Namespace:
    defaults, crowd = Configuration(), Crowd()
    slugs = [scenario.slug for scenario in STORY]
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description="Fifty buyers, one product: does the shop sell more than it has?",
        epilog="Exit status: 0 every scenario went as expected, 1 a locked shop oversold, "
        "2 inconclusive, 3 it could not be run.",
    )
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"one or more of {', '.join(slugs)}; all if none is given. "
        "'up SCENARIO' opens only the shop of one, and keeps it open.",
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default="file", help="the lock service (default: file)"
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        default="django",
        help="of the shop (default: django); mixed leaves out two-…, which mixed-… are then",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report, an HTML page, here")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--users", type=int, default=crowd.users, help="buyers (default: %(default)s)")
    parser.add_argument(
        "--purchases", type=int, default=crowd.purchases, help="of each (default: %(default)s)"
    )
    parser.add_argument("--stock", type=int, default=defaults.stock, help="units (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=defaults.pause, help="between read and write, s")
    parser.add_argument("--port", type=int, default=0, help="of the shop, with up (default: any free one)")
    parser.add_argument(
        "--database",
        default="sqlite",
        help=f"{', '.join(DATABASES)}, or the URL of a server of yours (default: sqlite)",
    )
    options = parser.parse_args(arguments)
    options.up = options.scenarios[:1] == ["up"]
    options.scenarios = options.scenarios[options.up :]
    slugs = [scenario.slug for scenario in story(options.framework)]
    if unknown := sorted(set(options.scenarios) - set(slugs)):
        parser.error(
            f"with --framework {options.framework} there is no scenario {unknown[0]!r}; "
            f"there are: {', '.join(slugs)}"
        )
    try:
        kind_of(options.database)
    except ValueError as error:
        parser.error(str(error))
    if not 0 <= options.port <= 65535:
        parser.error(f"there is no port {options.port}: choose one up to 65535")
    if options.up and len(options.scenarios) != 1:
        parser.error(f"up opens one shop. Say which: {', '.join(slugs)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    try:
        options = parse(arguments)
    except SystemExit as end:
        # argparse's own status is 2, which would read as inconclusive.
        return COULD_NOT_RUN if end.code else ALL_SHOWN
    # Ending our servers is part of ending, also when we are asked to end from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return open_shop(options) if options.up else tell_story(options)
    except StackError as error:
        print(f"The load test can't run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return INTERRUPTED


def tell_story(options: argparse.Namespace) -> int:
    scenarios = choose(story(options.framework), options.scenarios)
    shop = replace(Configuration.from_environment(), stock=options.stock, pause=options.pause)
    crowd = Crowd(options.users, options.purchases)
    progress, runs = Progress(), dict[str, Run]()
    progress.open(crowd, shop.stock)
    for number, scenario in enumerate(scenarios, 1):
        progress.begin(number, len(scenarios), scenario, shop.stock)
        control = runs[scenario.control].conclusion if scenario.control else None
        run = run_scenario(
            scenario, shop, crowd, options.backend, options.database, control, progress.selling
        )
        runs[scenario.slug] = run
        progress.end(run)
    told = list(runs.values())
    print(json.dumps(as_json(told), indent=2) if options.json else f"\n{summary(told)}", flush=True)
    if options.report:
        write_report(told, options.report)
        progress.say(f"\nThe report, with plots, is {options.report}: open it in a browser.", last=True)
    return exit_status(told)


def open_shop(options: argparse.Namespace) -> NoReturn:
    (scenario,) = (one for one in story(options.framework) if one.slug == options.scenarios[0])
    shop = replace(
        Configuration.from_environment(), stock=options.stock, pause=options.pause, guard=scenario.guard
    )
    with Stack(scenario.instances, shop, options.backend, options.database, options.port) as stack:
        keep_open(scenario, stack, Crowd(options.users, options.purchases))


def choose(scenarios: tuple[Scenario, ...], wanted: list[str]) -> list[Scenario]:
    """The wanted ones, each with its control before it: alone, a locked run proves nothing."""
    if not wanted:
        return list(scenarios)
    controls = {scenario.control for scenario in scenarios if scenario.slug in wanted}
    return [scenario for scenario in scenarios if scenario.slug in {*wanted, *controls}]


def exit_status(runs: list[Run]) -> int:
    conclusions = {run.conclusion for run in runs}
    if Conclusion.WRONG in conclusions:
        return WRONG
    return ALL_SHOWN if conclusions == {Conclusion.SHOWN} else INCONCLUSIVE


if __name__ == "__main__":
    sys.exit(main())
