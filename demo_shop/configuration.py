"""How an instance of the shop is set up: by its environment, the same for both frameworks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VAR = Path(__file__).resolve().parents[1] / "var"
GUARDS = {
    "none": "no lock",
    "process": "a lock inside each process",
    "distributed": "a distributed lock",
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Each field is the environment variable ``SHOP_<FIELD>``."""

    #: Who answers, as told by the header ``X-Instance``.
    instance: str = "shop"
    #: ``sqlite:////absolute/path``, ``postgresql://user@host/name`` or ``mysql://user@host/name``.
    database: str = f"sqlite:///{VAR / 'shop.sqlite3'}"
    #: What stands around the purchase: one of `GUARDS`.
    guard: str = "none"
    #: Where the distributed lock lives: ``LOCATION`` of ``DISTLOCK``.
    lock: str = (VAR / "locks").as_uri()
    #: A dotted path swaps the lock service for another: ``BACKEND`` of ``DISTLOCK``.
    lock_backend: str = ""
    #: Lifetime of the distributed lock without renewal, seconds.
    lock_ttl: float = 10.0
    #: How long the shop thinks between reading and writing the stock, seconds.
    pause: float = 0.01
    #: Units on the shelf when the sale opened. The page needs it to say how many there ever were.
    stock: int = 100

    @classmethod
    def from_environment(cls) -> Configuration:
        found = {
            name: kind(os.environ[f"SHOP_{name.upper()}"])
            for name, kind in KINDS.items()
            if f"SHOP_{name.upper()}" in os.environ
        }
        made = cls(**found)  # type: ignore[arg-type]  # KINDS holds each field's own type
        if made.guard not in GUARDS:
            raise SystemExit(f"SHOP_GUARD is {made.guard!r}. It is one of: {', '.join(GUARDS)}.")
        return made

    def to_environment(self) -> dict[str, str]:
        return {f"SHOP_{name.upper()}": str(getattr(self, name)) for name in KINDS}

    def distlock(self) -> dict[str, dict[str, object]]:
        """The setting ``DISTLOCK``, of Django and of Flask."""
        alias: dict[str, object] = {
            "LOCATION": self.lock,
            "PREFIX": "shop",
            "TTL": self.lock_ttl,
            "TIMEOUT": 20,
            # All fifty buyers may stand before one instance.
            "MAX_WAITERS": 64,
        }
        return {"default": alias | ({"BACKEND": self.lock_backend} if self.lock_backend else {})}


KINDS: dict[str, type[str | float | int]] = {
    "instance": str,
    "database": str,
    "guard": str,
    "lock": str,
    "lock_backend": str,
    "lock_ttl": float,
    "pause": float,
    "stock": int,
}
