"""``python -m bench.calls``: how many functions of ours one uncontended purchase calls, and one bare lock.

It also counts their files, all of which a reader of a traceback or a profile has to open. A generator counts
each time that it goes on. ``--names`` lists the functions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import distlock
from demo_shop.configuration import Configuration
from demo_shop.ledger import open_sale
from loadtest.servers.lock_services import open_lock_service
from loadtest.stack import APPLICATIONS

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(str(ROOT / package) + os.sep for package in ("distlock", "django_distlock", "flask_distlock"))

#: Calls that are not counted, in which objects are made that are then kept.
WARM = 3


def counted(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of distlock's functions in *work*, after *work* has run a few times."""
    for _ in range(WARM):
        work()
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls[f"{os.path.relpath(frame.f_code.co_filename, ROOT)} {frame.f_code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def pair(url: str) -> Counter[str]:
    lock = distlock.connect(url, prefix="bench").lock("product_1")

    def work() -> None:
        with lock:
            pass

    return counted(work)


def purchase(framework: str) -> Counter[str]:
    """Count the calls of a purchase in the demo's shop, as its environment configures it."""
    from werkzeug.test import Client

    module, _, name = APPLICATIONS[framework].partition(":")
    client = Client(getattr(__import__(module, fromlist=[name]), name))

    def work() -> None:
        answer = client.post("/products/1/reduce", headers={"X-Buyer": "bench"})
        assert answer.status_code == 200, answer.get_data(as_text=True)

    return counted(work)


def shown(what: str, calls: Counter[str], names: bool) -> None:
    files = {name.partition(" ")[0] for name in calls}
    print(f"{what:<20} {calls.total():>4} calls in {len(files):>2} files", flush=True)
    for name, times in calls.most_common() if names else ():
        print(f"    {times:>3} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--names", action="store_true", help="which functions, and how often each")
    parser.add_argument("--of", choices=APPLICATIONS, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.of:
        # Each framework configures itself when it is imported, so each gets its own process.
        shown(f"{told.of}, a purchase", purchase(told.of), told.names)
        return
    with tempfile.TemporaryDirectory() as directory, open_lock_service("redis", Path(directory)) as url:
        shown("a lock", pair(url), told.names)
        for framework in APPLICATIONS:
            database = f"sqlite:///{directory}/{framework}.sqlite3"
            open_sale(database, stock=WARM + 1, products=1)
            shop = Configuration(database=database, guard="distributed", lock=url, pause=0.0)
            options = ["--of", framework, *(["--names"] if told.names else [])]
            subprocess.run(
                [sys.executable, "-m", "bench.calls", *options],
                env=os.environ | shop.to_environment(),
                cwd=ROOT,
                check=True,
            )


if __name__ == "__main__":
    main()
