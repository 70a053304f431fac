"""``python -m bench.admission``: which requests are refused, and what that costs, beside what it shall be.

Two instances of gunicorn with 16 threads each, Redis, PostgreSQL, README's settings; about three minutes. The
machine should have nothing else to do: buyers, shops and servers share its processors.
"""

from __future__ import annotations

import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import distlock
from bench.buyers import PATIENCE, Answer, Buyer, at, buy, percentile, together
from bench.site import told
from demo_shop.configuration import Configuration
from demo_shop.ledger import open_sale
from loadtest.servers.processes import StackError
from loadtest.stack import Stack

THREADS = 16
BUYERS = 50
TIMEOUT = 5.0
#: Where each is bought.
PRODUCT = {number: f"/products/{number}/reduce" for number in (1, 2, 3)}
#: Units of each product where nothing is to be sold out.
PLENTY = 1_000_000

APPLICATIONS = {
    f"{framework}-{kind}": told(framework, **words)
    for kind, words in {
        "plain": {},
        "unlimited": {"TIMEOUT": 3600.0},
        "slow": {"pause": 1.0},
        "held": {"pause": 0.1},
        "capped": {"pause": 0.1, "MAX_WAITERS_TOTAL": 8},
        "full": {"MAX_WAITERS_TOTAL": 1, "TIMEOUT": 60.0},
    }.items()
    for framework in ("django", "flask")
}


@dataclass(frozen=True, slots=True)
class Line:
    """One number and its target."""

    what: str
    measured: str
    target: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.what:<47} {self.measured:>14}  {self.target:<7} {verdict}".rstrip()


class Bench:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def port(self, kind: str) -> int:
        """Return the port of the nginx in front of the two instances of that *kind*."""
        return self.stack.front_for([f"django-{kind}", f"flask-{kind}"]).port

    def restock(self, units: int) -> None:
        open_sale(self.stack.database, units, self.stack.shop.products)

    def burst(self) -> Iterator[Line]:
        stock, asked = 400, BUYERS * 10
        self.restock(stock)
        answers = buy(self.port("plain"), PRODUCT[1], BUYERS, purchases=10)
        sold, refused = count(answers, "sold"), count(answers, "refused")
        self.restock(PLENTY)
        yield Line("50 buyers x 10 at once: sold of 400", f"{sold}", "400", sold == stock)
        share = refused / asked
        yield Line("  refused", f"{share:.1%}", "< 2 %", share < 0.02)

    def again_at_once(self) -> Iterator[Line]:
        rounds, seconds, sold = 4, 2.5, {"plain": 0, "unlimited": 0}
        for _ in range(rounds):
            for kind in sold:
                sold[kind] += count(buy(self.port(kind), PRODUCT[1], BUYERS, seconds=seconds), "sold")
        rates = {kind: number / (rounds * seconds) for kind, number in sold.items()}
        yield Line("50 buyers again at once: sales/s, no limit", f"{rates['unlimited']:.0f}")
        ratio = rates["plain"] / rates["unlimited"]
        yield Line("  sales/s with admission", f"{rates['plain']:.0f}")
        yield Line("  ratio", f"{ratio:.2f}", ">= 0.8", ratio >= 0.8)

    def slow_view(self) -> Iterator[Line]:
        answers = buy(self.port("slow"), PRODUCT[1], BUYERS, seconds=30.0, again_after=0.5)
        late = [answer for answer in answers if answer.at > TIMEOUT]
        sold, in_vain = count(late, "sold"), count(late, "in_vain")
        refused = [answer for answer in late if answer.refused]
        share = in_vain / max(1, sold + in_vain)
        yield Line("a view of 1 s: sold, after the first 5 s", f"{sold}")
        yield Line("  admitted and waited in vain", f"{in_vain} ({share:.1%})", "< 5 %", share < 0.05)
        yield Line("  refused", f"{len(refused)}")
        # What the client hears has stood in the server's queue for a thread, and in nginx.
        inside = sorted(answer.inside for answer in refused)
        yield Line("  in the server's thread: median", f"{at(inside, 0.5) * 1000:.1f} ms")
        yield Line("  in the server's thread: p99", f"{at(inside, 0.99) * 1000:.1f} ms")
        heard = percentile(refused, 0.99)
        yield Line("  at the client: median", f"{percentile(refused, 0.5) * 1000:.0f} ms")
        yield Line("  at the client: p99", f"{heard * 1000:.0f} ms", "< 50 ms", heard < 0.05)

    def others(self) -> Iterator[Line]:
        for kind in ("capped", "held"):
            port = self.port(kind)
            quiet = percentile(buy(port, PRODUCT[2], 1, purchases=20), 0.5)
            flood: list[Answer] = []
            others: list[Answer] = []

            def rush(port: int = port, flood: list[Answer] = flood) -> None:
                flood += buy(port, PRODUCT[1], BUYERS, seconds=10.0, again_after=0.1)

            def look(port: int = port, others: list[Answer] = others) -> None:
                time.sleep(1.0)
                others += buy(port, PRODUCT[2], 1, seconds=8.0)

            together([rush, look])
            slowest = percentile(others, 0.99)
            ratio = slowest / quiet
            if kind == "capped":
                yield Line("another product beside a flood, capped: p99", f"{slowest:.2f} s")
                yield Line("  in quiet holds", f"{ratio:.1f}", "< 5", ratio < 5)
            else:
                yield Line("  without a cap, for comparison", f"{ratio:.1f}")

    def processor(self) -> Iterator[Line]:
        for framework in ("django", "flask"):
            rounds = [self._costs(framework) for _ in range(3)]
            served, nowhere, refused = (statistics.median(costs) for costs in zip(*rounds, strict=True))
            yield Line(f"{framework}: processor time of a served answer", f"{served * 1000:.2f} ms")
            yield Line("  of a 404: framework and server by themselves", f"{nowhere * 1000:.2f} ms")
            yield Line("  of a refused one", f"{refused * 1000:.2f} ms")
            yield Line("  to a served one", f"{refused / served:.2f}")
            # Less is not to be had from behind the framework, however dear a served answer is.
            yield Line("  to a 404", f"{refused / nowhere:.2f}", "< 1.3", refused / nowhere < 1.3)

    def _costs(self, framework: str) -> tuple[float, float, float]:
        """Of a served answer, of a 404, and of a refused one."""
        with self._full(self.stack.instance_ports[self.stack.frameworks.index(f"{framework}-full")]):
            refused = self._cost(f"{framework}-full", PRODUCT[1], purchases=100)
        nowhere = self._cost(f"{framework}-full", "/nowhere", purchases=100)
        return self._cost(f"{framework}-unlimited", PRODUCT[3], purchases=40), nowhere, refused

    def _cost(self, name: str, path: str, purchases: int) -> float:
        """Processor seconds that the instance *name* spends on an answer, in a rush of eight buyers."""
        number, buyers = self.stack.frameworks.index(name), 8
        group, port = self.stack.instances[number].process.pid, self.stack.instance_ports[number]
        buy(port, path, buyers, purchases=2)
        before = processor_seconds(group)
        buy(port, path, buyers, purchases=purchases)
        return (processor_seconds(group) - before) / (buyers * purchases)

    @contextmanager
    def _full(self, port: int) -> Iterator[None]:
        """Product 1 is held by us, and one buyer waits for it: all that may."""
        locks = distlock.connect(self.stack.shop.lock, prefix="shop")
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

        def ask() -> None:
            answers.put(Buyer(port, PRODUCT[1]).buy(0.0))

        asking = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        try:
            with locks.lock("product_1"):
                for one in asking:
                    one.start()
                # One of them waits, whichever comes first, so the other one is refused.
                if not answers.get(timeout=PATIENCE).refused:
                    raise StackError("Nobody is refused.")
                yield
        finally:
            locks.close()
        for one in asking:
            one.join()


def count(answers: Sequence[Answer], kind: str) -> int:
    return sum(bool(getattr(answer, kind)) for answer in answers)


def processor_seconds(group: int) -> float:
    """Processor time that a process group has used so far, as Linux tells it."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = process.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        if int(words[2]) == group:
            ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    shop = Configuration(guard="distributed", stock=PLENTY, products=4)
    missed = 0
    with Stack(
        list(APPLICATIONS),
        shop,
        backend="redis",
        database="postgresql",
        applications=APPLICATIONS,
        threads=THREADS,
    ) as stack:
        bench = Bench(stack)
        for scene in (bench.burst, bench.again_at_once, bench.slow_view, bench.others, bench.processor):
            for line in scene():
                print(line, flush=True)
                missed += line.met is False
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StackError as error:
        sys.exit(str(error))
