"""The settings of an instance of the shop, from its environment, for all frameworks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VAR = Path(__file__).resolve().parents[1] / "var"

#: The default of distlock, seconds.
TTL = 10.0

#: ``BACKEND`` of ``DISTLOCK``, and the value of `Configuration.lock`, if there is no lock service.
IN_THE_DATABASE = "database"

NO_FOR_UPDATE = (
    "SQLite has no SELECT … FOR UPDATE: its one writer locks the whole file. "
    "Take a PostgreSQL or MariaDB database, or another guard."
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of one instance. Each field is the environment variable ``SHOP_<FIELD>``."""

    #: The name of the instance, which its answers have in the header ``X-Instance``.
    instance: str = "shop"
    #: ``sqlite:////absolute/path``, ``postgresql://user@host/name`` or ``mysql://user@host/name``.
    database: str = f"sqlite:///{VAR / 'shop.sqlite3'}"
    #: The guard that keeps buyers apart: a key of `demo_shop.guards.GUARDS`.
    guard: str = "none"
    #: Where the distributed lock lives: ``LOCATION`` of ``DISTLOCK``, or ``database``.
    lock: str = (VAR / "locks").as_uri()
    #: The dotted path of another backend: ``BACKEND`` of ``DISTLOCK``.
    lock_backend: str = ""
    #: Lifetime of the distributed lock without renewal, seconds.
    lock_ttl: float = TTL
    #: Whether the distributed lock passes the fence in the database: ``FENCE`` of ``DISTLOCK``.
    fence: bool = False
    #: Django's setting ``ATOMIC_REQUESTS``: one transaction around the whole view.
    atomic_requests: bool = False
    #: How many seconds longer COMMIT takes on PostgreSQL: see `demo_shop.ledger.slow_down`.
    commit_pause: float = 0.0
    #: How many seconds pass between reading and writing the stock.
    pause: float = 0.01
    #: Units of each product when the sale opened, which the page shows.
    stock: int = 100
    #: How many products there are, at most as many as `demo_shop.sale.CATALOGUE` has names.
    products: int = 1
    #: The URL of the Redis that has the stock of ``/kill``. Without it, ``/kill`` answers 503.
    goods: str = ""
    #: How many seconds pass in ``/kill`` between reading and writing the stock.
    kill_pause: float = 2.0
    #: The URL of the payment gateway, for ``/readers/pay``.
    gateway: str = ""
    #: The file in which the Django shop notes the moments of each purchase; see `demo_shop.sale.reach`.
    journal: str = ""
    #: ``instance:moment:port``: the first purchase of the instance stops at the moment until the listener on
    #: the port hangs up. ``instance:moment:port:purchase``: each purchase with that name stops.
    stall: str = ""
    #: Whether a server that sends buyers answers at ``/sale``: see `loadtest.open_shop`.
    sales: bool = False

    @property
    def row_is_lock(self) -> bool:
        """Whether a row of the shop's own database is the lock, instead of a lock service."""
        return self.lock == IN_THE_DATABASE

    @property
    def has_readers(self) -> bool:
        """Whether the lock service has shared locks and permits. Rows of the database have no permits."""
        if self.row_is_lock:
            return False
        # Import these here, because a program that only reads a configuration may lack distlock's extras.
        from distlock.backends.factory import capabilities_of, scheme_of

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
        """Return the setting ``DISTLOCK``: the README's keys, and others only if they are configured."""
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
    """Return whether *text* is one of the usual words for on. Exit if it is no word for off either."""
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
