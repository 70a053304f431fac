"""The guards of a purchase: a lock around the view, a safe way to write, or neither.

The second half is the same for async views, which wait in the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from demo_shop.configuration import Configuration
from demo_shop.museum.exhibits import EXHIBITS
from demo_shop.sale import Refusal, contended, reach

View = Callable[..., Any]
Decorator = Callable[[View], View]


class ViewLock(Protocol):
    """The lock of one name. Each purchase makes a new one."""

    def acquire(self) -> object:
        """Wait for the lock. A false result turns the buyer away."""

    def release(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Guard:
    """A lock around the view, how the view writes, and the texts about both."""

    #: The name on the page and in the report.
    title: str
    #: Why it is enough for several instances, or not.
    why: str
    #: The line of code in a Django view that makes the difference.
    line: str
    #: Makes the lock of one name. None: nothing is locked around the view.
    lock: Callable[[Configuration, str], ViewLock] | None = None
    #: How the stock is written: the name of a function in ``selling.py`` of each framework.
    way: str = "read_and_write"


_making = threading.Lock()
_process_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def process_lock(name: str) -> threading.Lock:
    """Return the lock of *name* in this process. Other processes have locks of their own."""
    # Without the mutex, two threads that ask for a new name at once could get different locks.
    with _making:
        return _process_locks[name]


def unique_row(shop: Configuration, name: str) -> ViewLock:
    from demo_shop.locks import UniqueRow

    return UniqueRow(shop.database, name)


def plain(shop: Configuration, name: str) -> ViewLock:
    from demo_shop.locks import plain_lock

    return plain_lock(shop, name)


#: The guard that is the framework's own ``@distributed_lock(...)``.
DISTRIBUTED = "distributed"
GUARDS = {
    "none": Guard(
        "no lock",
        "Nothing makes one buyer wait for another. "
        "Many read the same stock, and each of them writes it back minus one.",
        "# nothing keeps two buyers apart",
    ),
    "process": Guard(
        "process lock",
        "The process lock lets one buyer at a time read and write the stock, but only inside its instance.",
        'with process_lock("product_1"):  # a threading.Lock',
        lock=lambda _, name: process_lock(name),
    ),
    DISTRIBUTED: Guard(
        "distributed lock",
        "All instances ask the same distributed lock. "
        "One buyer at a time is inside, whichever instance serves it.",
        '@distributed_lock("product_<id>")',
    ),
    "plain": Guard(
        "plain lock decorator",
        "The decorator releases the lock when the view returns. The framework may commit after that, "
        "and the next buyer reads what is about to be overwritten.",
        'with locks.lock("product_1"):  # around the view, inside its transaction',
        lock=plain,
    ),
    "for-update": Guard(
        "SELECT … FOR UPDATE",
        "The database locks the row from the read to the COMMIT, for all instances alike.",
        "Product.objects.select_for_update().get(pk=id)",
        way="for_update",
    ),
    "conditional": Guard(
        "UPDATE … WHERE stock >= n",
        "One statement checks and writes, so nothing can come in between.",
        'Product.objects.filter(pk=id, stock__gte=1).update(stock=F("stock") - 1)',
        way="conditional",
    ),
    "optimistic": Guard(
        "version column",
        "The write is refused if somebody wrote since the read. Then the shop begins again.",
        "Product.objects.filter(pk=id, version=read.version).update(...)",
        way="optimistic",
    ),
    "unique-row": Guard(
        "row as lock",
        "Only one can insert a row with the product's name; deleting it lets the next one in.",
        'with UniqueRow("product_1"):  # inserts a row, and deletes it',
        lock=unique_row,
    ),
    # None of the museum's locks is enough.
    **{
        slug: Guard(exhibit.title, exhibit.fault, f"# of the museum: {exhibit.title}", exhibit.lock)
        for slug, exhibit in EXHIBITS.items()
    },
}


def configured() -> Configuration:
    """Return the configuration in the environment. Exit if its guard is none of `GUARDS`."""
    shop = Configuration.from_environment()
    if shop.guard not in GUARDS:
        raise SystemExit(f"SHOP_GUARD is {shop.guard!r}. It is one of: {', '.join(GUARDS)}.")
    return shop


def guarded(
    shop: Configuration,
    distributed: Decorator,
    names: Callable[..., Iterable[str]],
    refuse: Callable[[Refusal], Any],
) -> Decorator:
    """Return the decorator of a view with the guard that *shop* names.

    *distributed*: the framework's ``@distributed_lock(...)``, for the guard `DISTRIBUTED`. *names*: returns
    the names to lock for all other guards, from the view's arguments. *refuse*: makes a response of a
    `Refusal`.
    """
    guard = GUARDS[shop.guard]

    def decorate(view: View) -> View:
        if shop.guard == DISTRIBUTED:
            return timed(view, distributed, refuse)
        if guard.lock:
            return timed(view, functools.partial(locked, shop=shop, make=guard.lock, names=names), refuse)
        return timed(view, lambda inner: inner, refuse)

    return decorate


def locked(
    view: View, shop: Configuration, make: Callable[[Configuration, str], ViewLock], names: Callable[..., Any]
) -> View:
    """Decorate *view*: run it inside the locks of all its names."""

    @functools.wraps(view)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as held:
            # The names are sorted, because carts that take locks in different orders would deadlock.
            for name in sorted(set(names(*args, **kwargs))):
                lock = make(shop, name)
                if not lock.acquire():
                    raise contended()
                reach(shop, "granted")
                held.callback(reach, shop, "released")
                held.callback(lock.release)
            return view(*args, **kwargs)

    return inside


@dataclass(slots=True)
class PurchaseClock:
    """The times at which a request for a purchase arrived, and its view began and ended, seconds."""

    asked: float
    entered: float
    left: float

    @staticmethod
    def start() -> PurchaseClock:
        now = perf_counter()
        _clock.set(clock := PurchaseClock(now, now, now))
        return clock

    def __str__(self) -> str:
        """Return the header ``Server-Timing``: how long the buyer waited, and how long the view worked."""
        wait, work = self.entered - self.asked, self.left - self.entered
        return f"wait;dur={wait * 1000:.2f}, work;dur={work * 1000:.2f}"


#: The clock of the purchase that this thread or task carries out.
_clock: ContextVar[PurchaseClock] = ContextVar("clock")


@contextmanager
def at_work() -> Iterator[None]:
    """Note when the block, which is the purchase's view, begins and ends."""
    clock = _clock.get()
    clock.entered = perf_counter()
    try:
        yield
    finally:
        clock.left = perf_counter()


def timed(view: View, guard: Decorator, refuse: Callable[[Refusal], Any]) -> View:
    """Decorate *view*: run it inside *guard*, and answer with ``Server-Timing``."""

    @functools.wraps(view)
    def work(*args: Any, **kwargs: Any) -> Any:
        with at_work():
            try:
                return view(*args, **kwargs)
            except Refusal as refusal:
                return refuse(refusal)

    inside = guard(work)

    @functools.wraps(inside)
    def answer(*args: Any, **kwargs: Any) -> Any:
        clock = PurchaseClock.start()
        try:
            response = inside(*args, **kwargs)
        except Refusal as refusal:
            response = refuse(refusal)
        response.headers["Server-Timing"] = str(clock)
        return response

    return answer


#: The guards that have an async lock.
ASYNC_GUARDS = ("none", "process", DISTRIBUTED)
#: The locks of this process, which has one event loop.
_async_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


def guarded_async(
    shop: Configuration,
    distributed: Decorator,
    names: Callable[..., Iterable[str]],
    refuse: Callable[[Refusal], Any],
) -> Decorator:
    """Return the decorator of an async view with the guard that *shop* names; see `guarded`."""
    if shop.guard not in ASYNC_GUARDS:
        raise SystemExit(f"SHOP_GUARD is {shop.guard!r}. Async views have: {', '.join(ASYNC_GUARDS)}.")

    def decorate(view: View) -> View:
        if shop.guard == DISTRIBUTED:
            return timed_async(view, distributed, refuse)
        if shop.guard == "process":
            return timed_async(view, functools.partial(locked_async, names=names), refuse)
        return timed_async(view, lambda inner: inner, refuse)

    return decorate


def locked_async(view: View, names: Callable[..., Iterable[str]]) -> View:
    """Decorate *view*: run it inside the event loop's locks of all its names."""

    @functools.wraps(view)
    async def inside(*args: Any, **kwargs: Any) -> Any:
        async with AsyncExitStack() as held:
            # The names are sorted, because carts that take locks in different orders would deadlock.
            for name in sorted(set(names(*args, **kwargs))):
                await held.enter_async_context(_async_locks[name])
            # A buyer who goes away cancels this task, but the view's thread goes on writing. Keep the locks
            # until the thread has ended.
            work = asyncio.ensure_future(view(*args, **kwargs))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise

    return inside


def timed_async(view: View, guard: Decorator, refuse: Callable[[Refusal], Any]) -> View:
    """Decorate *view*: run it inside *guard*, and answer with ``Server-Timing``."""

    @functools.wraps(view)
    async def work(*args: Any, **kwargs: Any) -> Any:
        with at_work():
            try:
                return await view(*args, **kwargs)
            except Refusal as refusal:
                return refuse(refusal)

    inside = guard(work)

    @functools.wraps(inside)
    async def answer(*args: Any, **kwargs: Any) -> Any:
        clock = PurchaseClock.start()
        try:
            response = await inside(*args, **kwargs)
        except Refusal as refusal:
            response = refuse(refusal)
        response.headers["Server-Timing"] = str(clock)
        return response

    return answer
