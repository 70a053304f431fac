"""Open the shop of one scenario and leave it open, for a browser, or for `locust` and its page."""

from __future__ import annotations

import os
import select
import sys
import time
import webbrowser
from collections.abc import Sequence
from typing import NoReturn

from demo_shop.guards import DISTRIBUTED
from loadtest.crowd import Crowd
from loadtest.scenario import QUART, Scenario
from loadtest.stack import Stack
from loadtest.visit import BUY, Visit

INVITATION = """
{slug}: {title}
{instances}, behind nginx

  The shop:    {url}/
               Choose what keeps buyers apart, and send 50 of them.
  More buyers: .venv/bin/locust -f loadtest/locustfile.py \\
                 --host {url} --web-host 127.0.0.1 \\
                 --users {users} --spawn-rate {users} --purchases {purchases}{visit}
               Then open http://127.0.0.1:8089/ and press Start.
               With --headless it needs no page.

Enter fills the shelf again. Ctrl-C closes the shop.{locked}
"""
CONTINUED = " \\\n                 "


def invitation(scenario: Scenario, visit: Visit, instances: Sequence[str], url: str, crowd: Crowd) -> str:
    pair = "mixed" if scenario.slug.startswith("mixed") else "two"
    up = "--async up" if scenario.is_async else "up"
    framework = scenario.instances[0]
    chosen = f" --framework {framework}" if framework in ("flask", QUART) else ""
    locked = f"\nWith the distributed lock: scripts/demo {up} {pair}-{DISTRIBUTED}{chosen}"
    return INVITATION.format(
        slug=scenario.slug,
        title=scenario.title,
        instances=" and ".join(instances),
        url=url,
        users=crowd.users,
        purchases=crowd.purchases,
        locked="" if scenario.guard == DISTRIBUTED else locked,
        visit="" if visit.slug == BUY else f"{CONTINUED}--visit {visit.slug} --products {visit.products}",
    )


def keep_open(scenario: Scenario, visit: Visit, stack: Stack, crowd: Crowd) -> NoReturn:
    """Tell where the shop is, then tell each change of its stock, until Ctrl-C."""
    print(invitation(scenario, visit, stack.names, stack.url, crowd), flush=True)
    if has_desktop():
        webbrowser.open(f"{stack.url}/")
    initial, told = stack.shop.stock * visit.products, (-1, -1)
    while True:
        ledger = stack.ledger()
        seen = ledger.sold, ledger.stock
        if seen != told:
            excess = f"  OVERSOLD by {seen[0] - initial}" if seen[0] > initial else ""
            print(f"sold {seen[0]} of {initial}, stock {seen[1]}{excess}", flush=True)
            told = seen
        if asked_to_restock(0.5):
            with stack.shelf:
                stack.restock()


def has_desktop() -> bool:
    """Whether a person is there to see a browser. Without a desktop one could take the terminal."""
    desktop = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    return bool(desktop) and sys.stdout.isatty()


def asked_to_restock(patience: float) -> bool:
    """Whether Enter was pressed. Without a keyboard, only the pause."""
    if not sys.stdin.isatty():
        time.sleep(patience)
        return False
    return bool(select.select([sys.stdin], [], [], patience)[0]) and bool(sys.stdin.readline())
