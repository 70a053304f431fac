"""How an instance of the shop is set up: by its environment, the same for both frameworks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VAR = Path(__file__).resolve().parents[1] / "var"

#: The default of distlock, seconds.
TTL = 10.0

#: Stands in the place of a lock service's URL, and is ``BACKEND`` of ``DISTLOCK`` then.
IN_THE_DATABASE = "database"

NO_FOR_UPDATE = (
    "SQLite has no SELECT … FOR UPDATE: its one writer locks the whole file. "
    "Take a PostgreSQL or MariaDB database, or another guard."
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of one instance. Each field is the environment variable ``SHOP_<FIELD>``."""

    #: The instance that answers, as told by the header ``X-Instance``.
    instance: str = "shop"
    #: ``sqlite:////absolute/path``, ``postgresql://user@host/name`` or ``mysql://user@host/name``.
    database: str = f"sqlite:///{VAR / 'shop.sqlite3'}"
    #: What keeps buyers apart: one of `demo_shop.guards.GUARDS`.
    guard: str = "none"
    #: Where the distributed lock lives: ``LOCATION`` of ``DISTLOCK``, or ``database``.
    lock: str = (VAR / "locks").as_uri()
    #: A dotted path swaps the lock service for another: ``BACKEND`` of ``DISTLOCK``.
    lock_backend: str = ""
    #: Lifetime of the distributed lock without renewal, seconds.
    lock_ttl: float = TTL
    #: Whether the distributed lock passes the fence in the database: ``FENCE`` of ``DISTLOCK``.
    fence: bool = False
    #: Django's setting: one transaction around the whole view.
    atomic_requests: bool = False
    #: How much longer COMMIT takes, seconds; on PostgreSQL. See `demo_shop.ledger.slow_down`.
    commit_pause: float = 0.0
    #: How long the shop thinks between reading and writing the stock, seconds.
    pause: float = 0.01
    #: Units of each product when the sale opened. The page needs it to say how many there ever were.
    stock: int = 100
    #: How many products there are, at most as many as `demo_shop.sale.CATALOGUE` has names.
    products: int = 1
    #: The Redis of ``/kill``, whose stock is not in the database. Without one there is no ``/kill``.
    goods: str = ""
    #: How long ``/kill`` takes between reading and writing, seconds: in the article two.
    kill_pause: float = 2.0
    #: The URL of the payment gateway, for ``/readers/pay``.
    gateway: str = ""
    #: The file in which the Django shop notes the moments of each purchase; see `demo_shop.sale.reach`.
    journal: str = ""
    #: ``instance:moment:port``: the first purchase of that instance stays there until the port hangs up.
    #: ``instance:moment:port:purchase``: each that its buyer calls so.
    stall: str = ""
    #: Whether ``/sale`` leads to somebody who sends buyers: see `loadtest.open_shop`.
    sales: bool = False

    @property
    def row_is_lock(self) -> bool:
        """Return whether a row of the shop's own database is the lock, in the place of a lock service."""
        return self.lock == IN_THE_DATABASE

    @property
    def has_readers(self) -> bool:
        """Return whether the lock service has shared locks and permits. A row of the database has neither."""
        if self.row_is_lock:
            return False
        # Not every program that reads a configuration has distlock's extras.
        from distlock.backends.registry import capabilities_of, scheme_of

        can = capabilities_of(self.lock_backend or scheme_of(self.lock))
        return can.read and can.permits

    @classmethod
    def from_environment(cls) -> Configuration:
        found = {
            name: kind(os.environ[f"SHOP_{name.upper()}"])
            for name, kind in KINDS.items()
            if f"SHOP_{name.upper()}" in os.environ
        }
        made = cls(**found)  # type: ignore[arg-type]  # KINDS holds each field's own type
        if made.guard == "for-update" and made.database.startswith("sqlite"):
            raise SystemExit(f"SHOP_GUARD is 'for-update'. {NO_FOR_UPDATE}")
        return made

    def to_environment(self) -> dict[str, str]:
        return {f"SHOP_{name.upper()}": str(getattr(self, name)) for name in KINDS}

    def distlock(self) -> dict[str, dict[str, object]]:
        """Return ``DISTLOCK`` of Django and of Flask: the README's keys, and what was asked for besides."""
        if self.row_is_lock:
            return {"default": {"BACKEND": IN_THE_DATABASE, "PREFIX": "shop"}}
        alias: dict[str, object] = {"LOCATION": self.lock, "PREFIX": "shop"}
        if self.lock_ttl != TTL:
            alias["TTL"] = self.lock_ttl
        if self.fence:
            alias["FENCE"] = True
        if self.lock_backend:
            alias["BACKEND"] = self.lock_backend
        return {"default": alias}


def switch(text: str) -> bool:
    """Return whether *text* is one of the usual words for on. Exits where it is none for off either."""
    if text.lower() not in {"1", "true", "yes", "on", "0", "false", "no", "off", ""}:
        raise SystemExit(f"{text!r} is neither on nor off: write 1 or 0.")
    return text.lower() in {"1", "true", "yes", "on"}


KINDS: dict[str, Callable[[str], object]] = {
    "instance": str,
    "database": str,
    "guard": str,
    "lock": str,
    "lock_backend": str,
    "lock_ttl": float,
    "fence": switch,
    "atomic_requests": switch,
    "commit_pause": float,
    "pause": float,
    "stock": int,
    "products": int,
    "goods": str,
    "kill_pause": float,
    "gateway": str,
    "journal": str,
    "stall": str,
    "sales": switch,
}
