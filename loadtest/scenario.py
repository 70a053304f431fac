"""A scenario: which instances with which guard, who comes to buy, and what must be seen."""

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
    #: A buyer who is told to come later does so after this time at the latest, seconds.
    pause: float = 5.0

    @property
    def requests(self) -> int:
        return self.users * self.purchases


@dataclass(frozen=True, slots=True)
class Visit:
    """What the buyers do in the shop: the page that they ask for, and what stands on the shelf for them."""

    slug: str
    #: The rest of a sentence that begins with "Each buyer".
    does: str
    #: The report's description of what happens between the read and the write.
    race: str
    stock: int
    products: int = 1
    #: Between read and write, seconds.
    pause: float = 0.01
    #: Whether the answer tells of an order, or of its refusal. The article's pages answer the same to all.
    tells: bool = True
    #: Whether the stock is in Redis and not in the database.
    in_redis: bool = False

    def furnish(self, shop: Configuration, stock: int | None, pause: float | None) -> Configuration:
        """Return *shop* as this visit needs it, where nothing else was asked for."""
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
        # A cart is more work for the database, and only work in the same moment shows the race.
        pause=0.04,
    ),
    REDUCE: Visit(
        REDUCE,
        "asks for GET /stock/reduce?id=1, which always answers OK",
        "The shop looks up the stock, thinks, and if there was some lets the database subtract one.",
        # As in the article: the last unit is the one that is sold twice. One thinks only once, so longer.
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
    #: Chance decides, and one of the two must be seen.
    EITHER = "either"
    #: Something else than units went wrong: see `loadtest.readers`.
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Stop:
    """The moment in which the first instance stops in its first purchase, until others had their turn."""

    #: The moment of the purchase: see `demo_shop.sale.reach`.
    at: str
    #: How many units the others sell before it goes on; None: all that are left.
    sold: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Some instances with one guard, and what must be seen when a crowd buys at them."""

    #: The arrangement of the instances and the guard, by their short names.
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
    #: Whether the transaction is the framework's, around the whole view; and how long its COMMIT takes.
    atomic_requests: bool = False
    commit_pause: float = 0.0
    stop: Stop | None = None
    #: What is done to the lock service in that moment, in the place of stopping the instance.
    outage: Outage | None = None
    #: In the place of the guard's own title.
    called: str = ""

    @property
    def is_timed(self) -> bool:
        """Return whether the scenario is about which moment comes before which."""
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
            # A story of what happens without the fence keeps it off.
            fence=self.fence or (shop.fence and self.stop is None),
            atomic_requests=shop.atomic_requests or self.atomic_requests,
            commit_pause=self.commit_pause or shop.commit_pause,
        )


def pair(slug: str, where: str, instances: tuple[str, ...], broken: str, mended: str) -> tuple[Scenario, ...]:
    """Return the scenario that oversells, and the one that differs only in the guard."""
    control = Scenario(f"{slug}-{broken}", where, instances, broken, Outcome.OVERSOLD)
    return control, replace(
        control, slug=f"{slug}-{mended}", guard=mended, must_be=Outcome.EXACT, control=control.slug
    )


FRAMEWORKS = ("django", "flask", "mixed")
MIXED = "a Django and a Flask instance"
#: The two instances that each framework's name stands for.
PAIRS = {"django": ("django", "django"), "flask": ("flask", "flask"), "mixed": ("django", "flask")}
#: Django with async views; and Quart, Flask for an event loop: Flask's own async views have a thread each.
ASGI, QUART = "django-asgi", "quart"
ASYNC_FRAMEWORKS = ("django", QUART, "mixed")
ASYNC_PAIRS = {"django": (ASGI, ASGI), QUART: (QUART, QUART), "mixed": (ASGI, QUART)}
TWO_ASYNC, MIXED_ASYNC = "two async instances", "an async Django instance and a Quart one"


def async_story(framework: str) -> tuple[Scenario, ...]:
    """Return the story in event loops: as `story`, with Quart in the place of Flask."""
    told = process_is_enough("one async instance", ASYNC_PAIRS[framework][:1])
    if framework != "mixed":
        told += pair("two", TWO_ASYNC, ASYNC_PAIRS[framework], "process", DISTRIBUTED)
    return told + pair("mixed", MIXED_ASYNC, ASYNC_PAIRS["mixed"], "process", DISTRIBUTED)


def process_is_enough(where: str, instances: tuple[str, ...]) -> tuple[Scenario, ...]:
    control, locked = pair("one", where, instances, "none", "process")
    return replace(control, slug="one-unlocked"), replace(locked, control="one-unlocked")


def story(framework: str, guard: str = DISTRIBUTED) -> tuple[Scenario, ...]:
    """Return the story: plain scenarios of *framework*, with *guard* where all instances need one."""
    told = process_is_enough("one instance", PAIRS[framework][:1])
    # In the mixed story, two instances are the Django and the Flask one: see below.
    if framework != "mixed":
        told += pair("two", "two instances", PAIRS[framework], "process", guard)
    return told + pair("mixed", MIXED, PAIRS["mixed"], "process", guard)


def unlocked(framework: str, is_async: bool = False) -> Scenario:
    """Return two instances without a lock: for a shop that is opened, to see it go wrong."""
    pairs = ASYNC_PAIRS if is_async else PAIRS
    slug, where = "two", TWO_ASYNC if is_async else "two instances"
    if framework == "mixed":
        slug, where = "mixed", MIXED_ASYNC if is_async else MIXED
    return Scenario(f"{slug}-unlocked", where, pairs[framework], "none", Outcome.OVERSOLD)


STORY = story("django")
