"""What ``"BACKEND": "database"`` may stand with, and what it means for a guard's fence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from distlock.errors import ConfigurationError

if TYPE_CHECKING:
    from distlock.web.decorator import Told
    from distlock.web.settings.shape import AliasSettings

#: Keys that have no meaning where the lock is a row of the database, and why.
_MEANINGLESS = {
    "TTL": "a row has no lifetime: it is locked until COMMIT or ROLLBACK",
    "MAX_HOLD": "a row is locked until COMMIT or ROLLBACK: let the database end transactions that hang",
    "ON_BACKEND_DOWN": "without its database no view can run",
    "OPTIONS": "it has none",
}


def contradictions(where: str, given: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the alias *where*, whose backend is ``database``, and what to do."""
    for key, why in _MEANINGLESS.items():
        if given.get(key):
            yield f"{where} has {key}, and the backend 'database' has not.", f"Leave it out: {why}."
    location = given.get("LOCATION")
    if isinstance(location, str) and "://" in location:
        yield (
            f"{where} keeps its locks in the site's own database, and its LOCATION is a URL.",
            'Write "BACKEND": "database", and as LOCATION the name of that database, if it has one.',
        )
    if given.get("FENCE", True) not in {True, location}:
        yield (
            f"{where} has the backend 'database' and FENCE.",
            "Leave FENCE out: the fence's row is the lock, in the database that LOCATION names.",
        )


def fence_for(settings: AliasSettings, told: Told) -> bool | str:
    """The database that a guard fences, in the framework's words: True is the default one, False none.

    Raises `ConfigurationError` if the guard was told what its backend can't do.
    """
    if settings.scheme != "database":
        return settings.fence if told.fence is None else told.fence
    if told.ttl is not None:
        raise ConfigurationError(
            f"{told}: DISTLOCK[{settings.alias!r}] has the backend 'database', where a lock has no ttl: it "
            "ends with its transaction. Leave ttl= out."
        )
    if told.fence is None or told.fence is True or told.fence == settings.fence:
        return settings.fence
    raise ConfigurationError(
        f"{told}: DISTLOCK[{settings.alias!r}] has the backend 'database', where the fence's row is the "
        "lock: leave fence= out. Another database is another alias, with its name as LOCATION."
    )
