"""A scenario: its instances and their guard, the buyers who come, and the outcome that it must have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED, GUARDS
from loadtest.servers.lock_services import Outage


@dataclass(frozen=True, slots=True)
class BuyerCrowd:
    """How many buyers, and how often each buys."""

    users: int = 50
    purchases: int = 10
    #: A refused buyer comes again after this many seconds at most.
    pause: float = 5.0

    @property
    def requests(self) -> int:
        return self.users * self.purchases


@dataclass(frozen=True, slots=True)
class Visit:
    """What the buyers do in the shop: the page that they request, and the products that they find."""

    slug: str
    #: The rest of a sentence that begins with "Each buyer".
    does: str
    #: The report's description of what happens between the read and the write.
    race: str
    stock: int
    products: int = 1
    #: Seconds between read and write.
    pause: float = 0.01
    #: Whether the answer has the number of the order. The answers of `REDUCE` and `KILL` have none.
    tells: bool = True
    #: Whether the stock is in Redis and not in the database.
    in_redis: bool = False

    def furnish(self, shop: Configuration, stock: int | None, pause: float | None) -> Configuration:
        """Return *shop* with the stock and pause of this visit, unless others are given."""
        pause = self.pause if pause is None else pause
        return replace(
            shop,
            stock=self.stock if stock is None else stock,
            products=self.products,
            pause=pause,
            kill_pause=pause,
        )


BUY, CART, REDUCE, KILL = "buy", "cart", "reduce", "kill"
VISITS = {
    BUY: Visit(
        BUY,
        "buys one unit",
        "For each purchase the shop looks up the stock, thinks for a few milliseconds, "
        "and writes the stock back minus one.",
        stock=100,
    ),
    CART: Visit(
        CART,
        "checks out a cart: some of the products, in any order",
        "For each cart the shop looks up the stock of its products, thinks for a few milliseconds, "
        "and writes each stock back minus what is bought. A cart is bought as a whole or not at all.",
        stock=25,
        products=4,
        # A cart is more work for the database, so the pause has to be longer for carts to overlap.
        pause=0.04,
    ),
    REDUCE: Visit(
        REDUCE,
        "asks for GET /stock/reduce?id=1, which always answers OK",
        "The shop looks up the stock, thinks, and if there was some lets the database subtract one.",
        # With one unit there is one chance to sell it twice. The longer pause makes that likely.
        stock=1,
        pause=0.2,
        tells=False,
    ),
    KILL: Visit(
        KILL,
        "asks for GET /kill, which sells from a stock in Redis",
        "The shop reads the stock from Redis, thinks, and writes it back minus one. No database is asked.",
        stock=20,
        pause=0.05,
        tells=False,
        in_redis=True,
    ),
}


class Outcome(StrEnum):
    """What a run showed, or must show."""

    OVERSOLD = "oversold"
    EXACT = "exact"
    #: Chance decides between the two above.
    EITHER = "either"
    #: Reports were torn or payments refused: see `loadtest.readers`.
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Stop:
    """The moment at which the first instance stops in its first purchase, until others have bought."""

    #: The moment of the purchase: see `demo_shop.sale.reach`.
    at: str
    #: How many units the others sell before the instance goes on; None: all that are left.
    sold: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Some instances with one guard, and the outcome that a sale must have there."""

    #: Short names of the arrangement and the guard.
    slug: str
    #: The name of the arrangement.
    where: str
    #: The framework of each instance.
    instances: tuple[str, ...]
    guard: str
    must_be: Outcome
    #: The scenario that differs only in the guard. It must oversell, or this one proves nothing.
    control: str | None = None
    #: Whether the guard passes the fence.
    fence: bool = False
    #: Whether the framework opens a transaction around the view.
    atomic_requests: bool = False
    #: How many seconds longer COMMIT takes.
    commit_pause: float = 0.0
    stop: Stop | None = None
    #: What is done to the lock service at the moment `stop.at`, instead of stopping the instance.
    outage: Outage | None = None
    #: A title for the guard; "": the guard's own title.
    called: str = ""

    @property
    def is_timed(self) -> bool:
        """Whether the scenario is about the order of moments, so that the instances note them."""
        return self.atomic_requests or self.stop is not None

    @property
    def is_async(self) -> bool:
        return not {ASGI, QUART}.isdisjoint(self.instances)

    @property
    def title(self) -> str:
        guard = self.called or GUARDS[self.guard].title
        return f"{self.where}, {guard}{' and fence' if self.fence else ''}"

    def furnish(self, shop: Configuration) -> Configuration:
        """Return *shop* as this scenario needs it."""
        return replace(
            shop,
            guard=self.guard,
            # Scenarios with a stop compare the fence with none, so the shop's setting does not count there.
            fence=self.fence or (shop.fence and self.stop is None),
            atomic_requests=shop.atomic_requests or self.atomic_requests,
            commit_pause=self.commit_pause or shop.commit_pause,
        )


def pair(slug: str, where: str, instances: tuple[str, ...], broken: str, mended: str) -> tuple[Scenario, ...]:
    """Return the scenario with the guard *broken*, which oversells, and the same one with *mended*."""
    control = Scenario(f"{slug}-{broken}", where, instances, broken, Outcome.OVERSOLD)
    return control, replace(
        control, slug=f"{slug}-{mended}", guard=mended, must_be=Outcome.EXACT, control=control.slug
    )


FRAMEWORKS = ("django", "flask", "mixed")
MIXED = "a Django and a Flask instance"
#: The two instances that each framework's name stands for.
PAIRS = {"django": ("django", "django"), "flask": ("flask", "flask"), "mixed": ("django", "flask")}
#: Django with async views; and Quart, because each of Flask's async views needs a thread.
ASGI, QUART = "django-asgi", "quart"
ASYNC_FRAMEWORKS = ("django", QUART, "mixed")
ASYNC_PAIRS = {"django": (ASGI, ASGI), QUART: (QUART, QUART), "mixed": (ASGI, QUART)}
TWO_ASYNC, MIXED_ASYNC = "two async instances", "an async Django instance and a Quart one"


def async_story(framework: str) -> tuple[Scenario, ...]:
    """Return the same scenarios as `story`, with async views, and Quart instead of Flask."""
    told = process_is_enough("one async instance", ASYNC_PAIRS[framework][:1])
    if framework != "mixed":
        told += pair("two", TWO_ASYNC, ASYNC_PAIRS[framework], "process", DISTRIBUTED)
    return told + pair("mixed", MIXED_ASYNC, ASYNC_PAIRS["mixed"], "process", DISTRIBUTED)


def process_is_enough(where: str, instances: tuple[str, ...]) -> tuple[Scenario, ...]:
    control, locked = pair("one", where, instances, "none", "process")
    return replace(control, slug="one-unlocked"), replace(locked, control="one-unlocked")


def story(framework: str, guard: str = DISTRIBUTED) -> tuple[Scenario, ...]:
    """Return the scenarios of *framework*: a process lock on one instance, and *guard* on two."""
    told = process_is_enough("one instance", PAIRS[framework][:1])
    # "mixed" has no two instances of one framework, only the pair below.
    if framework != "mixed":
        told += pair("two", "two instances", PAIRS[framework], "process", guard)
    return told + pair("mixed", MIXED, PAIRS["mixed"], "process", guard)


def unlocked(framework: str, is_async: bool = False) -> Scenario:
    """Return the scenario of two instances without a lock, for an open shop that goes wrong."""
    pairs = ASYNC_PAIRS if is_async else PAIRS
    slug, where = "two", TWO_ASYNC if is_async else "two instances"
    if framework == "mixed":
        slug, where = "mixed", MIXED_ASYNC if is_async else MIXED
    return Scenario(f"{slug}-unlocked", where, pairs[framework], "none", Outcome.OVERSOLD)


STORY = story("django")
