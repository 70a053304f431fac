"""The moments of purchases: how to read them from the journal, and how to stop an instance at one of them.

A purchase that is to stop at a moment connects there to the load test, and waits until the load test hangs
up. So the purchase stops exactly at the moment, and no test has to hit the right millisecond.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

import distlock
from demo_shop.guards import DISTRIBUTED
from demo_shop.sale import PRODUCT_ID
from demo_shop.storefront import Choice
from distlock.backends.factory import capabilities_of
from distlock.errors import LockError
from loadtest.scenario import Stop
from loadtest.servers.lock_services import StrikableService
from loadtest.servers.processes import PATIENCE
from loadtest.stack import Stack

#: If nothing was sold for this many seconds, the other buyers will sell nothing more.
AT_REST = 1.5


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment that a purchase reached, as its instance noted it."""

    #: Unix time; all instances are on one machine.
    at: float
    instance: str
    #: The buyer's name for the purchase.
    purchase: str
    what: str
    stock: int | None = None
    status: int | None = None
    code: str | None = None


#: The moments of one purchase by name, in their order.
PurchaseMoments = dict[str, Moment]


def read_moments(journal: str) -> tuple[Moment, ...]:
    """Return the moments in *journal*, oldest first."""
    if not journal or not Path(journal).exists():
        return ()
    # A stopped instance may have written half a line, which it completes later.
    lines = [line for line in Path(journal).read_text().splitlines(keepends=True) if line.endswith("\n")]
    return tuple(sorted(map(read_moment, lines), key=lambda moment: moment.at))


def read_moment(line: str) -> Moment:
    said = json.loads(line)
    stock = said.pop("stock", None)
    return Moment(**said, stock=None if stock is None else sum(stock.values()))


def by_purchase(moments: Iterable[Moment]) -> dict[str, PurchaseMoments]:
    """Return the moments of each purchase that was granted the lock, in the order of the grants."""
    found: dict[str, PurchaseMoments] = {}
    for moment in moments:
        if moment.what == "granted":
            found[moment.purchase] = {}
        if moment.purchase in found:
            found[moment.purchase][moment.what] = moment
    return found


def early_releases(moments: Iterable[Moment]) -> int:
    """Count the purchases that released the lock before their COMMIT had ended."""
    purchases = by_purchase(moments).values()
    both = [one for one in purchases if "released" in one and "committed" in one]
    return sum(one["released"].at < one["committed"].at for one in both)


@dataclass(frozen=True, slots=True)
class StoppedPurchase:
    """A purchase whose instance stood still from *since* to *until*, Unix times."""

    instance: str
    #: The buyer's name for the purchase that was under way.
    purchase: str
    since: float
    until: float


class InstanceStopper:
    """Stops *instance* once, in the middle of a purchase, while the sale goes on. A context manager."""

    def __init__(self, stop: Stop, instance: str) -> None:
        self.stop, self.instance = stop, instance
        #: The purchase that was stopped; None until the stop is over.
        self.stopped: StoppedPurchase | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.2)
        self._sale_is_over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    @property
    def where(self) -> str:
        """The value of ``SHOP_STALL`` for the instances."""
        return f"{self.instance}:{self.stop.at}:{self._listener.getsockname()[1]}"

    @contextmanager
    def beside(self, stack: Stack) -> Iterator[None]:
        """Stop the instance once while the block, which is a sale, runs."""
        thread = threading.Thread(target=self._run, args=[stack])
        thread.start()
        try:
            yield
        finally:
            self._sale_is_over.set()
            thread.join()

    def _run(self, stack: Stack) -> None:
        if (purchase := self._wait_for_purchase()) is not None:
            with purchase:
                name = purchase.makefile().read()
                with self._interrupted(stack, purchase) as since:
                    self._let_others_buy(stack, since)
                    self.stopped = StoppedPurchase(self.instance, name, since, time.time())

    @contextmanager
    def _interrupted(self, stack: Stack, purchase: socket.socket) -> Iterator[float]:
        """Stop the purchase during the block. Yield the time at which it was stopped."""
        victim = stack.instances[stack.names.index(self.instance)]
        try:
            victim.freeze()
            since = time.time()
            # Hang up now, so that the purchase goes on as soon as its process runs again.
            purchase.close()
            yield since
        finally:
            victim.thaw()

    def _wait_for_purchase(self) -> socket.socket | None:
        while not self._sale_is_over.is_set():
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
        return None

    def _let_others_buy(self, stack: Stack, since: float) -> None:
        """Wait until others have the lock, and then until they have sold enough or sell nothing any more."""
        before, patience = stack.ledger(), time.monotonic() + PATIENCE
        enough = before.sold + (before.stock if self.stop.sold is None else self.stop.sold)
        while not self._passed_on(stack, since) and time.monotonic() < patience:
            if self._sale_is_over.wait(0.05):
                return
        sold, moved = before.sold, time.monotonic()
        while sold < enough and time.monotonic() - moved < AT_REST:
            if self._sale_is_over.wait(0.02):
                return
            if (now := stack.ledger().sold) > sold:
                sold, moved = now, time.monotonic()

    def _passed_on(self, stack: Stack, since: float) -> bool:
        return any(
            moment.what == "granted" and moment.at > since for moment in read_moments(stack.shop.journal)
        )


class ServiceStriker(InstanceStopper):
    """Strikes the lock service while one purchase holds the lock and many wait for it.

    The purchase goes on at once or, if the service *forgets* the hold, after other purchases have sold units.
    """

    def __init__(self, struck: StrikableService, forgets: bool, stop: Stop, instance: str) -> None:
        super().__init__(stop, instance)
        self._struck, self._forgets = struck, forgets

    @contextmanager
    def beside(self, stack: Stack) -> Iterator[None]:
        self._struck.prepare()
        with super().beside(stack):
            yield

    def _run(self, stack: Stack) -> None:
        super()._run(stack)
        # When this thread ends, the kernel ends the processes that it has started: see `ChildProcess`.
        self._sale_is_over.wait()

    @contextmanager
    def _interrupted(self, stack: Stack, purchase: socket.socket) -> Iterator[float]:
        since = time.time()
        self._struck.strike()
        yield since

    def _let_others_buy(self, stack: Stack, since: float) -> None:
        if self._forgets:
            super()._let_others_buy(stack, since)


STANDS_AT = "read"
#: The first buyer has this many seconds to get to the moment `STANDS_AT`, before the others come.
ARRIVAL = 10.0
#: A purchase that connects sends its name within this many seconds.
AT_ONCE = 1.0
#: The process goes on at the latest this many seconds after its lease has ended.
LATEST = 10.0


@dataclass(slots=True)
class StoppedHolder:
    """A holder that is stopped in a sale of the page, and what has happened so far."""

    instance: str
    #: For how many seconds a stopped holder keeps its lock.
    lease: float
    #: The stock that its purchase had read.
    unit: int
    #: Whether the holder has the lock that all processes share.
    locked: bool
    began: float
    #: For how many seconds the holder was stopped; None: it still is.
    lasted: float | None = None
    #: Whether another process got the lock meanwhile.
    passed_on: bool = False
    #: How many units the others sold meanwhile.
    sold: int = 0
    #: The status of the answer to its buyer; 0: there is none yet.
    status: int = 0
    #: The code of the answer if it is a refusal.
    code: str = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began if self.lasted is None else self.lasted


class Standstill:
    """Stops one process of a `Stack` for longer than its lease, while it holds the lock.

    It sends SIGSTOP between reading the stock and writing it, which is what happens to a virtual machine that
    is moved, or a laptop that is closed. The process runs Django: elsewhere the lock checks its lease right
    before COMMIT, and notices the loss even without the fence. Make a `Standstill` before the instances
    start, because it adds to their configuration.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        #: The buyer's name for its purchase. It is secret, so that nobody else can stop an instance.
        self.purchase = secrets.token_hex(16)
        django = [number for number, framework in enumerate(stack.frameworks) if framework == "django"]
        #: Whether there is a process to stop, and a lock that passes on meanwhile.
        self.offered = bool(django) and has_lease(stack.shop.lock) and not stack.shop.lock_backend
        if self.offered:
            self.number = django[0]
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._listener.settimeout(ARRIVAL)
            port = self._listener.getsockname()[1]
            stall = f"{self.instance}:{STANDS_AT}:{port}:{self.purchase}"
            stack.shop = replace(stack.shop, stall=stall)

    @property
    def instance(self) -> str:
        return self.stack.names[self.number]

    @property
    def port(self) -> int:
        """The port of the instance itself, because nginx would choose an instance."""
        return self.stack.instance_ports[self.number]

    def close(self) -> None:
        if self.offered:
            self._listener.close()

    @contextmanager
    def held(self, choice: Choice) -> Iterator[StoppedHolder | None]:
        """Stop the instance during the purchase that was sent to it, until the other buyers have bought.

        The block has to send the other buyers. *choice*: the guard of all buyers. Yield None if no purchase
        got to the moment.
        """
        purchase = self._purchase()
        if purchase is None:
            yield None
            return
        victim = self.stack.instances[self.number]
        try:
            with purchase:
                victim.freeze()
                # The end of this block hangs up: the purchase goes on as soon as its process runs again.
            with closing(distlock.connect(self.stack.shop.lock, prefix="shop")) as locks:
                ledger, number = self.stack.ledger(), number_of(locks)
                unit, lease = ledger.left[PRODUCT_ID], self.stack.shop.lock_ttl
                locked = choice.guard == DISTRIBUTED
                standing = StoppedHolder(self.instance, lease, unit, locked, time.monotonic())
                yield standing
                # If the purchase has passed the fence, the others wait for its row and buy nothing.
                least = 0 if choice.fence else 1
                self._let_others_buy(standing, least, ledger.sold, locks, number)
            standing.lasted = standing.seconds
        finally:
            victim.thaw()

    def _purchase(self) -> socket.socket | None:
        """Return the connection of the purchase that is to stop, or None. Hang up on any other connection."""
        deadline = time.monotonic() + ARRIVAL
        while time.monotonic() < deadline:
            try:
                purchase = self._listener.accept()[0]
            except TimeoutError:
                return None
            purchase.settimeout(AT_ONCE)
            with contextlib.suppress(OSError):
                # Read to the end: after its name, the purchase only listens.
                if purchase.makefile("rb").read(len(self.purchase) + 1) == self.purchase.encode():
                    return purchase
            purchase.close()
        return None

    def _let_others_buy(
        self, standing: StoppedHolder, least: int, before: int, locks: distlock.Locks, number: int | None
    ) -> None:
        """Wait until the other buyers have the lock, have bought *least* units, and buy nothing any more.

        *before*: how many units were sold when the process stopped. *number*: the fence number of the hold at
        that time.
        """
        moved, pause = time.monotonic(), Event()
        victim = self.stack.instances[self.number].process
        while standing.seconds < standing.lease + LATEST and victim.poll() is None:
            if standing.locked and not standing.passed_on:
                standing.passed_on = number_of(locks) not in (None, number)
                moved = time.monotonic()
            if (sold := self.stack.ledger().sold - before) > standing.sold:
                standing.sold, moved = sold, time.monotonic()
            if time.monotonic() - moved > AT_REST and sold >= least:
                return
            pause.wait(0.05)


def has_lease(lock: str) -> bool:
    """Return whether a lock at the URL *lock* passes on while its holder is stopped."""
    scheme, separator, _ = lock.partition("://")
    return bool(separator) and capabilities_of(scheme).lease


def number_of(locks: distlock.Locks) -> int | None:
    """Return the fence number of the product's hold; None: nobody holds it."""
    with contextlib.suppress(LockError):
        fence = locks.inspect(f"product_{PRODUCT_ID}").fence
        return fence.number if fence is not None else None
    return None
