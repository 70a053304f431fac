"""One process stands still in a sale of the page, for longer than its lease, while it holds the lock.

SIGSTOP, between reading the stock and writing it: as a virtual machine that is moved, or a laptop that is
closed. The process is one of Django: elsewhere the lock's own look at its lease, right before COMMIT, finds
out without the fence, too.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from threading import Event

import distlock
from demo_shop.choices import Choice
from demo_shop.guards import DISTRIBUTED
from demo_shop.orders import PRODUCT_ID
from distlock.backends.registry import capabilities_of
from distlock.errors import LockError
from loadtest.stack import Stack

MOMENT = "read"
#: How long the one buyer has to get there, seconds: nobody else has come yet.
PATIENCE = 10.0
#: What comes to us says what it is at once, seconds.
AT_ONCE = 1.0
#: The others have done what they can if nothing was sold for so long, seconds.
AT_REST = 1.5
#: It goes on so long after its lease at the latest, seconds.
LATEST = 10.0


@dataclass(slots=True)
class Standing:
    """What came of it, while it goes on."""

    instance: str
    #: How long a holder that stands still keeps its lock, seconds.
    lease: float
    #: The stock that it had read.
    unit: int
    #: Whether it holds the lock that all processes share.
    locked: bool
    began: float
    #: Seconds; None: it still stands still.
    lasted: float | None = None
    #: Whether the lock went to somebody else meanwhile.
    passed_on: bool = False
    #: How many units the others sold meanwhile.
    sold: int = 0
    #: What its buyer was told then: the status, and the code of a refusal.
    status: int = 0
    code: str = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began if self.lasted is None else self.lasted


class Standstill:
    """Of one `Stack`, and made before its instances are: they are told where to ask."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        #: What the buyer calls its purchase. Nobody else knows it, and so nobody else can stop an instance.
        self.purchase = secrets.token_hex(16)
        django = [number for number, framework in enumerate(stack.frameworks) if framework == "django"]
        #: Whether there is a process to stop, and a lock that doesn't stay with it.
        self.offered = bool(django) and has_lease(stack.shop.lock) and not stack.shop.lock_backend
        if self.offered:
            self.number = django[0]
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._listener.settimeout(PATIENCE)
            port = self._listener.getsockname()[1]
            stall = f"{self.instance}:{MOMENT}:{port}:{self.purchase}"
            stack.shop = replace(stack.shop, stall=stall)

    @property
    def instance(self) -> str:
        return self.stack.names[self.number]

    @property
    def port(self) -> int:
        """Of the instance itself: nginx would choose."""
        return self.stack.instance_ports[self.number]

    def close(self) -> None:
        if self.offered:
            self._listener.close()

    @contextmanager
    def held(self, choice: Choice) -> Iterator[Standing | None]:
        """Stop the instance in the purchase that was sent to it, until the others have had their turn.

        They come in the block. *choice*: what guards them. Gives None where no purchase got so far.
        """
        purchase = self._purchase()
        if purchase is None:
            yield None
            return
        victim = self.stack.instances[self.number]
        try:
            with purchase:
                victim.freeze()
                # We hang up: it goes on as soon as it runs again.
            with closing(distlock.connect(self.stack.shop.lock, prefix="shop")) as locks:
                ledger, number = self.stack.ledger(), number_of(locks)
                unit, lease = ledger.left[PRODUCT_ID], self.stack.shop.lock_ttl
                locked = choice.guard == DISTRIBUTED
                standing = Standing(self.instance, lease, unit, locked, time.monotonic())
                yield standing
                # Where it has passed the fence they wait for it in the database.
                least = 0 if choice.fence else 1
                self._let_others_buy(standing, least, ledger.sold, locks, number)
            standing.lasted = standing.seconds
        finally:
            victim.thaw()

    def _purchase(self) -> socket.socket | None:
        """The one that has got there; None: none has. Whatever else comes to our port is hung up on."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                purchase = self._listener.accept()[0]
            except TimeoutError:
                return None
            purchase.settimeout(AT_ONCE)
            with contextlib.suppress(OSError):
                # To its end: the purchase only listens from then on.
                if purchase.makefile("rb").read(len(self.purchase) + 1) == self.purchase.encode():
                    return purchase
            purchase.close()
        return None

    def _let_others_buy(
        self, standing: Standing, least: int, before: int, locks: distlock.Locks, number: int | None
    ) -> None:
        """Until nothing moves any more, and they have the lock and have bought *least* units.

        *before*: what was sold, and *number*: which hold there was, when it began to stand still.
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
    """Whether a lock there passes on when its holder stands still."""
    scheme, separator, _ = lock.partition("://")
    return bool(separator) and capabilities_of(scheme).lease


def number_of(locks: distlock.Locks) -> int | None:
    """What names the hold of the product; None: nobody holds it."""
    with contextlib.suppress(LockError):
        fence = locks.inspect(f"product_{PRODUCT_ID}").fence
        return fence.number if fence is not None else None
    return None
