"""``python -m bench.admission``: which requests are refused and what that costs, with the targets.

It takes about three minutes: two instances of gunicorn with 16 threads each, Redis, PostgreSQL, and README's
settings. The machine should have nothing else to do, because buyers, shops and servers share its processors.
"""

from __future__ import annotations

import importlib
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import distlock
from bench.buyers import (
    INSIDE,
    PATIENCE,
    JsonBuyer,
    PurchaseAnswer,
    at,
    buy_with_answers,
    percentile,
    together,
)
from bench.services import cpu_of_group
from demo_shop.configuration import Configuration
from demo_shop.ledger import open_sale
from loadtest.servers.processes import StackError
from loadtest.stack import APPLICATIONS, Stack

THREADS = 16
BUYERS = 50
TIMEOUT = 5.0
#: The path at which each product is bought.
PRODUCT = {number: f"/products/{number}/reduce" for number in (1, 2, 3)}
#: So many units of each product that none is sold out.
PLENTY = 1_000_000

#: By kind of shop: the settings that differ from README's, and the seconds that a purchase takes (pause).
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unlimited": {"TIMEOUT": 3600.0},
    "slow": {"pause": 1.0},
    "held": {"pause": 0.1},
    "capped": {"pause": 0.1, "MAX_WAITERS_TOTAL": 8},
    "full": {"MAX_WAITERS_TOTAL": 1, "TIMEOUT": 60.0},
}


@dataclass(frozen=True, slots=True)
class TargetLine:
    """One line of output: a figure and its target."""

    what: str
    measured: str
    target: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.what:<47} {self.measured:>14}  {self.target:<7} {verdict}".rstrip()


class AdmissionTrial:
    """The scenes, each of which yields its lines."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def port(self, kind: str) -> int:
        """Return the port of the nginx in front of the two instances of *kind*."""
        return self.stack.front_for([f"django-{kind}", f"flask-{kind}"]).port

    def restock(self, units: int) -> None:
        open_sale(self.stack.database, units, self.stack.shop.products)

    def burst(self) -> Iterator[TargetLine]:
        stock, asked = 400, BUYERS * 10
        self.restock(stock)
        answers = buy_with_answers(self.port("plain"), PRODUCT[1], BUYERS, purchases=10)
        sold, refused = count(answers, "sold"), count(answers, "refused")
        self.restock(PLENTY)
        yield TargetLine("50 buyers x 10 at once: sold of 400", f"{sold}", "400", sold == stock)
        share = refused / asked
        yield TargetLine("  refused", f"{share:.1%}", "< 2 %", share < 0.02)

    def again_at_once(self) -> Iterator[TargetLine]:
        rounds, seconds, sold = 4, 2.5, {"plain": 0, "unlimited": 0}
        for _ in range(rounds):
            for kind in sold:
                sold[kind] += count(
                    buy_with_answers(self.port(kind), PRODUCT[1], BUYERS, seconds=seconds), "sold"
                )
        rates = {kind: number / (rounds * seconds) for kind, number in sold.items()}
        yield TargetLine("50 buyers again at once: sales/s, no limit", f"{rates['unlimited']:.0f}")
        ratio = rates["plain"] / rates["unlimited"]
        yield TargetLine("  sales/s with admission", f"{rates['plain']:.0f}")
        yield TargetLine("  ratio", f"{ratio:.2f}", ">= 0.8", ratio >= 0.8)

    def slow_view(self) -> Iterator[TargetLine]:
        answers = buy_with_answers(self.port("slow"), PRODUCT[1], BUYERS, seconds=30.0, again_after=0.5)
        late = [answer for answer in answers if answer.at > TIMEOUT]
        sold, in_vain = count(late, "sold"), count(late, "in_vain")
        refused = [answer for answer in late if answer.refused]
        share = in_vain / max(1, sold + in_vain)
        yield TargetLine("a view of 1 s: sold, after the first 5 s", f"{sold}")
        yield TargetLine("  admitted and waited in vain", f"{in_vain} ({share:.1%})", "< 5 %", share < 0.05)
        yield TargetLine("  refused", f"{len(refused)}")
        # The answer that the client receives has also waited in nginx, and for a thread of the server.
        inside = sorted(answer.inside for answer in refused)
        yield TargetLine("  in the server's thread: median", f"{at(inside, 0.5) * 1000:.1f} ms")
        yield TargetLine("  in the server's thread: p99", f"{at(inside, 0.99) * 1000:.1f} ms")
        heard = percentile(refused, 0.99)
        yield TargetLine("  at the client: median", f"{percentile(refused, 0.5) * 1000:.0f} ms")
        yield TargetLine("  at the client: p99", f"{heard * 1000:.0f} ms", "< 50 ms", heard < 0.05)

    def others(self) -> Iterator[TargetLine]:
        for kind in ("capped", "held"):
            port = self.port(kind)
            quiet = percentile(buy_with_answers(port, PRODUCT[2], 1, purchases=20), 0.5)
            flood: list[PurchaseAnswer] = []
            others: list[PurchaseAnswer] = []

            def rush(port: int = port, flood: list[PurchaseAnswer] = flood) -> None:
                flood += buy_with_answers(port, PRODUCT[1], BUYERS, seconds=10.0, again_after=0.1)

            def look(port: int = port, others: list[PurchaseAnswer] = others) -> None:
                time.sleep(1.0)
                others += buy_with_answers(port, PRODUCT[2], 1, seconds=8.0)

            together([rush, look])
            slowest = percentile(others, 0.99)
            ratio = slowest / quiet
            if kind == "capped":
                yield TargetLine("another product beside a flood, capped: p99", f"{slowest:.2f} s")
                yield TargetLine("  in quiet holds", f"{ratio:.1f}", "< 5", ratio < 5)
            else:
                yield TargetLine("  without a cap, for comparison", f"{ratio:.1f}")

    def processor(self) -> Iterator[TargetLine]:
        for framework in ("django", "flask"):
            rounds = [self._costs(framework) for _ in range(3)]
            served, nowhere, refused = (statistics.median(costs) for costs in zip(*rounds, strict=True))
            yield TargetLine(f"{framework}: processor time of a served answer", f"{served * 1000:.2f} ms")
            yield TargetLine("  of a 404: framework and server by themselves", f"{nowhere * 1000:.2f} ms")
            yield TargetLine("  of a refused one", f"{refused * 1000:.2f} ms")
            yield TargetLine("  to a served one", f"{refused / served:.2f}")
            # The framework itself costs as much as a 404, however expensive a served answer is.
            yield TargetLine("  to a 404", f"{refused / nowhere:.2f}", "< 1.3", refused / nowhere < 1.3)

    def _costs(self, framework: str) -> tuple[float, float, float]:
        """Return the processor seconds of a served answer, of a 404, and of a refused one."""
        with self._full(self.stack.instance_ports[self.stack.frameworks.index(f"{framework}-full")]):
            refused = self._cost(f"{framework}-full", PRODUCT[1], purchases=100)
        nowhere = self._cost(f"{framework}-full", "/nowhere", purchases=100)
        return self._cost(f"{framework}-unlimited", PRODUCT[3], purchases=40), nowhere, refused

    def _cost(self, name: str, path: str, purchases: int) -> float:
        """Return the processor seconds that the instance *name* spends on an answer, with eight buyers."""
        number, buyers = self.stack.frameworks.index(name), 8
        group, port = self.stack.instances[number].process.pid, self.stack.instance_ports[number]
        buy_with_answers(port, path, buyers, purchases=2)
        before = cpu_of_group(group)
        buy_with_answers(port, path, buyers, purchases=purchases)
        return (cpu_of_group(group) - before) / (buyers * purchases)

    @contextmanager
    def _full(self, port: int) -> Iterator[None]:
        """Hold product 1 while one buyer waits for it, so that its wait queue is full."""
        locks = distlock.connect(self.stack.shop.lock, prefix="shop")
        answers: queue.SimpleQueue[PurchaseAnswer] = queue.SimpleQueue()

        def ask() -> None:
            answers.put(JsonBuyer(port, PRODUCT[1]).buy(0.0))

        asking = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        try:
            with locks.lock("product_1"):
                for one in asking:
                    one.start()
                # The first one waits, and the second one is refused.
                if not answers.get(timeout=PATIENCE).refused:
                    raise StackError("Nobody is refused.")
                yield
        finally:
            locks.close()
        for one in asking:
            one.join()


def count(answers: Sequence[PurchaseAnswer], kind: str) -> int:
    return sum(bool(getattr(answer, kind)) for answer in answers)


def shop(framework: str, pause: float, **settings: object) -> Any:
    """Return the WSGI application of *framework*'s shop, which gunicorn serves.

    *pause*: seconds between read and write under the lock. *settings*: ``DISTLOCK`` without LOCATION and
    PREFIX.
    """

    def distlock(self: Configuration) -> dict[str, dict[str, object]]:
        return {"default": {"LOCATION": self.lock, "PREFIX": "shop", **settings}}

    Configuration.distlock = distlock  # type: ignore[method-assign]
    os.environ["SHOP_PAUSE"] = str(pause)
    module, _, name = APPLICATIONS[framework].partition(":")
    return timed(getattr(importlib.import_module(module), name))


def timed(application: Any) -> Any:
    """Wrap *application* so that a header says for how many seconds a thread worked on the answer."""

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        began = time.monotonic()

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, (INSIDE, f"{time.monotonic() - began:.6f}")], *rest)

        return application(environ, start)

    return served


def gunicorn_application(framework: str, pause: float = 0.0, **settings: object) -> str:
    """Return the argument that makes gunicorn serve `shop` with these arguments."""
    words = [repr(framework), repr(pause), *(f"{word}={value!r}" for word, value in settings.items())]
    return f"bench.admission:shop({', '.join(words)})"


def main() -> int:
    configuration = Configuration(guard="distributed", stock=PLENTY, products=4)
    shops = {
        f"{framework}-{kind}": gunicorn_application(framework, **settings)
        for kind, settings in KINDS.items()
        for framework in ("django", "flask")
    }
    missed = 0
    with Stack(
        list(shops),
        configuration,
        backend="redis",
        database="postgresql",
        applications=shops,
        threads=THREADS,
    ) as stack:
        bench = AdmissionTrial(stack)
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
