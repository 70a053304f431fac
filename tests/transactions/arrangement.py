"""One way to arrange lock, transaction and view, and what has to become of a sale in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: ``plain``: the lock of ``lock``, let go when the decorator returns. ``lock``: our guard, and no fence.
#: ``fence``: our guard with a fence, and a lock that keeps nobody out. ``row``: no lock service, as
#: ``BACKEND: "database"`` has it. ``batch``: our guard with a fence, and ``batch=32``. ``nothing``: no guard.
GUARDS = ("plain", "lock", "fence", "batch", "row", "nothing")
OURS = {"lock", "fence", "batch", "row"}

#: What is expected of a guard: every piece is sold once and no other, or more are sold than there are.
SELLS, OVERSELLS = "sells", "oversells"

#: Makes the view out of a decorator, which is the guard.
Make = Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Arrangement:
    make: Make
    #: As the page calls it.
    title: str
    #: What each guard comes to: `SELLS`, `OVERSELLS`, or a pattern of what a refusal says. None: not run.
    plain: str | None = OVERSELLS
    lock: str = SELLS
    fence: str | None = SELLS
    #: `SELLS`: as with a fence.
    batch: str | None = SELLS
    #: Django: with ``ATOMIC_REQUESTS``.
    atomic: bool = True
    #: … on both of the databases.
    both: bool = False
    asgi: bool = False
    #: Every request comes twice: first with ``?trouble``, or from a client that goes away during the sale.
    trouble: bool = False
    #: The view takes the lock by ``with``: the guard is the maker of its locks.
    block: bool = False
    #: The guard is a rule of the settings.
    rule: bool = False
    #: Django: with the middleware, which rules need, and lock errors that no guard of a view answers.
    middleware: bool = False

    @property
    def name(self) -> str:
        return self.make.__name__

    def expected(self, guard: str) -> str | None:
        """What *guard* comes to here. None: it is not run."""
        if guard == "nothing":
            # The control where a plain lock does as well.
            return OVERSELLS if self.plain == SELLS else None
        if guard == "batch" and self.batch != SELLS:
            return self.batch
        # A row is a fence that is the lock, too.
        expected: str | None = getattr(self, "fence" if guard in {"row", "batch"} else guard)
        return expected


class Table(dict[str, Arrangement]):
    """The arrangements of one framework, by name."""

    def add(self, title: str, **options: Any) -> Callable[[Make], Make]:
        def add(make: Make) -> Make:
            arrangement = Arrangement(make, title, **options)
            self[arrangement.name] = arrangement
            return make

        return add
