"""Two instances of a shop and its last piece: one is halted past its lease, and the other goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fence.instance import BUSY, Order
from tests.fence.instances import Instance, Stock, started

LOST = "answered 503 lock_lost"
KEPT_OUT = "answered 423 lock_contended"
SOLD = "answered 200"
SOLD_OUT = "answered 409"

#: The lease of the holder that is stopped, seconds. The other's is long: only the stop may cost a lock.
SHORT, LONG = 0.9, 30.0


@dataclass
class Pair:
    """Two instances of one shop. `a` is stopped, `b` goes on."""

    a: Instance
    b: Instance
    stock: Stock

    def stop_at(self, point: str) -> None:
        """Let `a` go for the last piece, and stop it at *point*."""
        self.halt_at(point)
        self.a.stop()
        # It goes on behind the point as soon as it runs again.
        self.a.tell("go on")

    def keep_busy_at(self, point: str) -> None:
        """Let `a` go for the last piece, and call into C at *point*, until `return_from_c`."""
        self.halt_at(point)
        self.a.tell(BUSY)

    def return_from_c(self) -> str:
        """What `a` is answered in the end."""
        self.a.tell("")
        return self.a.says()

    def halt_at(self, point: str) -> None:
        self.stock.put(1)
        self.a.tell(f"sell {point}")
        while (said := self.a.says()) != f"at {point}":
            # On a busy machine so short a lease may be over by itself.
            assert said == LOST
            self.a.tell(f"sell {point}")

    def sell(self) -> str:
        """What `b` is answered. It waits for the lock until the lease of `a` is over."""
        self.b.tell("sell")
        return self.b.says()

    def wake(self) -> str:
        """What `a` is answered in the end."""
        self.a.go_on()
        return self.a.says()


def pair(site: tuple[str, str, str, str], fence: bool, atomic: bool = True, way: str = "") -> Iterator[Pair]:
    """*site*: database, lock service and two frameworks. *way*: the URL by which `a` reaches Redis."""
    database, redis, first, second = site
    a = Order(first, database, way or redis, "a", fence, SHORT, atomic=atomic)
    b = Order(second, database, redis, "b", fence, LONG, atomic=atomic)
    stock = Stock(database)
    with started(a, b) as (one, other):
        yield Pair(one, other, stock)
    stock.close()
