"""Pictures of the pages, taken of the real things: the shop, its report, the page of locks, Prometheus.

`scripts/docs --screenshots` runs this module. Each function starts what it shows on free ports, and stops it
when it ends or fails.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import redis
from PIL import Image

import distlock
from distlock import metrics
from docs.screenshots_of_locks import take_locks
from loadtest.__main__ import furnished
from loadtest.open_shop import serve_sales
from loadtest.options import parse
from loadtest.servers.lock_services import open_redis
from loadtest.servers.processes import StackError, run_once
from loadtest.stack import ROOT, Stack
from loadtest.stories import told
from tests.demo_shop.browser import Browser, Page, running_chromium
from tests.metrics.prometheus_server import scraping
from tests.redis_server import eventually

#: Pixels: a section of the shop as a phone shows it, two of which stand side by side in one picture.
PHONE = 470


def take_shop(chromium: Browser, folder: Path) -> None:
    """Photograph the shop after fifty buyers with a process lock, and beside it with distlock."""
    with open_shop() as stack, chromium.tab(PHONE) as page:
        page.open(f"{stack.url}/")
        for choice in ("none", "process", "distributed"):
            send_buyers(page, choice)
            page.photograph(folder / f".{choice}.png", "#sale", "#instances + p", margin=15)
        put_beside([folder / ".process.png", folder / ".distributed.png"], folder / "shop.png")


def take_standstill(chromium: Browser, folder: Path) -> None:
    """Photograph the shop after one process stood still: with the fence, then with distlock alone."""
    with open_shop() as stack, chromium.tab() as page:
        page.open(f"{stack.url}/")
        page.wait_for("!document.querySelector('#standstill').hidden")
        page.click("[name=stands-still]")
        for choice in ("fenced", "distributed"):
            send_buyers(page, choice)
        page.photograph(folder / "standstill.png", "#sale", "#why", margin=15)


def take_report(chromium: Browser, folder: Path) -> None:
    """Photograph the top of the report that `scripts/demo` writes about two instances."""
    report = folder / "report.html"
    words = f"-m loadtest --backend redis two-distributed --report {report}".split()
    run_once("The demo", [sys.executable, *words], folder / "demo.log")
    with chromium.tab() as page:
        page.open(report.as_uri())
        page.photograph(folder / "report.png", "section", "section:nth-of-type(2)", margin=15)


def take_alerts(chromium: Browser, folder: Path) -> None:
    """Photograph the alert rules in Prometheus. One fires: Redis was emptied while a lock was held."""
    exporter, _ = prometheus_client.start_http_server(0, addr="127.0.0.1")
    with open_redis(folder) as url, contextlib.ExitStack() as stop:
        stop.callback(exporter.shutdown)
        rules = Path(metrics.__path__[0]) / "alerts.yml"
        prometheus = stop.enter_context(scraping(exporter.server_port, rules, folder))
        page = stop.enter_context(chromium.tab())
        locks = distlock.connect(url, ttl=3, listener=metrics.listener("prometheus", "default"))
        stop.callback(locks.close)
        import_prices(locks)
        with contextlib.closing(redis.Redis.from_url(url)) as server:
            server.flushall()
        eventually(lambda: prometheus.fired("default"), "an alert fires", pause=0.1)
        page.open(f"{prometheus.url}/classic/alerts")
        page.click("button.show-annotations")
        page.click(".alert_header")
        page.wait_for("document.querySelector('.alert_details').offsetHeight > 0")
        # The file of the rules, without the folders of this machine.
        page.evaluate(
            "(it => it.innerText = it.innerText.replace(/.*[/]/, ''))(document.querySelector('td'))"
        )
        page.photograph(folder / "alerts.png", "nav", "#alertsTable")


@contextlib.contextmanager
def open_shop() -> Iterator[Stack]:
    """Open the shop of `scripts/demo up`."""
    options = parse(["up"])
    (scenario,) = (one for one in told(options) if one.slug == options.scenarios[0])
    shop = scenario.furnish(furnished(options))
    with Stack(scenario.instances, shop, options.backend, options.database, sales=serve_sales) as stack:
        yield stack


def import_prices(locks: distlock.Locks) -> None:
    """Take a lock, under the name of a job that a shop may have."""
    assert locks.lock("import_7").acquire()


def send_buyers(page: Page, choice: str) -> None:
    """Choose a guard on the page of the shop, press the button, and wait until each buyer has an answer."""
    ready = "document.querySelector('#sale button').ariaDisabled === 'false'"
    page.wait_for(ready)
    page.click(f"[name=guard][value={choice}]")
    page.click("#sale button")
    page.tell("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    page.wait_for(f"document.querySelector('[data-last={choice}]').innerText && {ready}")


def put_beside(files: list[Path], file: Path) -> None:
    """Write one picture of *files*, side by side."""
    left, right = (Image.open(one) for one in files)
    both = Image.new("RGB", (left.width + right.width, max(left.height, right.height)), "white")
    both.paste(left, (0, 0))
    both.paste(right, (left.width, 0))
    both.save(file)


PICTURES = {
    taker.__name__.removeprefix("take_"): taker
    for taker in (take_shop, take_standstill, take_report, take_locks, take_alerts)
}


def take(names: list[str], target: Path) -> None:
    """Take the pictures of these *names*, and write them into *target* in 256 colours."""
    with running_chromium() as chromium:
        for name in names:
            print(f"{name}: {PICTURES[name].__doc__}", flush=True)
            with tempfile.TemporaryDirectory(prefix="distlock-screenshots-") as folder:
                PICTURES[name](chromium, Path(folder))
                for file in Path(folder).glob("[!.]*.png"):
                    picture = Image.open(file).convert("RGB").quantize(dither=Image.Dither.NONE)
                    picture.save(target / file.name, optimize=True)
                    print(f"  wrote {target / file.name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs --screenshots")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PICTURES)}; all by default")
    parser.add_argument(
        "--to", type=Path, default=ROOT / "docs/static", help="a folder (default: docs/static)"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    # To leave a picture stops what it has started, also when this process is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        take(options.names or list(PICTURES), options.to)
    except StackError as error:
        sys.exit(f"The pictures can't be taken: {error}")
    print("Nothing is left running.")


if __name__ == "__main__":
    main()
