"""The table of known backends: the class of each scheme."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from distlock.errors import ConfigurationError

#: The group of entry points by which another distribution offers a backend. Their names are URL schemes.
GROUP = "distlock.backends"


class Home(NamedTuple):
    """The place of a backend's class, and what installs it."""

    #: ``package.module:Class``.
    path: str
    #: An example of its URL, or only the scheme if that is enough; "" if none is known.
    example: str = ""
    #: The extra of this distribution that installs its dependencies.
    extra: str | None = None
    #: The other distribution that offers it, if any.
    distribution: str | None = None


_REDIS = "distlock.backends.redis:RedisBackend"
_CLUSTER = "distlock.backends.cluster.backend:ClusterBackend"
_REDLOCK = "distlock.backends.redlock.backend:RedlockBackend"
_SENTINEL = "distlock.backends.sentinel.backend:SentinelBackend"
_ZOOKEEPER = "distlock.backends.zookeeper:ZooKeeperBackend"

#: Our backends, by scheme. No other distribution can use one of these schemes.
BUILT_IN = {
    "memory": Home("distlock.backends.memory:MemoryBackend", "memory://"),
    "file": Home("distlock.backends.file:FileBackend", "file:///var/lib/shop/locks"),
    "redis": Home(_REDIS, "redis://localhost:6379/0", "redis"),
    "rediss": Home(_REDIS, "rediss://localhost:6379/0", "redis"),
    "unix": Home(_REDIS, "unix:///run/redis/redis.sock", "redis"),
    "redis+cluster": Home(_CLUSTER, "redis+cluster://localhost:7000,localhost:7001", "redis"),
    "rediss+cluster": Home(_CLUSTER, "rediss+cluster://localhost:7000,localhost:7001", "redis"),
    "redlock": Home(_REDLOCK, "redlock://localhost:6379,localhost:6380,localhost:6381/0", "redis"),
    "redlocks": Home(_REDLOCK, "redlocks://localhost:6379,localhost:6380,localhost:6381/0", "redis"),
    "redis+sentinel": Home(_SENTINEL, "redis+sentinel://localhost:26379/mymaster/0", "redis"),
    "rediss+sentinel": Home(_SENTINEL, "rediss+sentinel://localhost:26379/mymaster/0", "redis"),
    "zookeeper": Home(_ZOOKEEPER, "zookeeper://localhost:2181/shop", "zookeeper"),
    "zookeepers": Home(_ZOOKEEPER, "zookeepers://localhost:2281/shop", "zookeeper"),
    "postgresql": Home(
        "distlock.backends.sql.postgresql:PostgreSQLBackend",
        "postgresql://user@localhost:5432/shop",
        "postgres",
    ),
    "mysql": Home("distlock.backends.sql.mysql:MySQLBackend", "mysql://user@localhost:3306/shop", "mysql"),
}


def home_of(word: str) -> Home | None:
    """Return the home of the backend *word*, a scheme or a dotted path; None if the scheme is unknown.

    A scheme that is not ours is looked up in the installed distributions. Raises `ConfigurationError` if
    several of them offer it, or if they can't be listed.
    """
    if word in BUILT_IN:
        return BUILT_IN[word]
    if "." in word:
        return Home(":".join(word.rsplit(".", 1)))
    offers = {point.value: point for point in _offers() if point.name == word} if word else {}
    if len(offers) > 1:
        several = " and ".join(sorted(_distribution(point) for point in offers.values()))
        raise ConfigurationError(
            f"Several installed distributions offer the backend {word!r}: {several}. Uninstall the others, "
            "or name the class of the right one by its dotted path, as backend= or BACKEND."
        )
    for value, point in offers.items():
        # After the path, an entry point may name extras of its distribution.
        path = value.partition("[")[0].strip()
        return Home(path, f"{word}://localhost", distribution=_distribution(point))
    return None


def word_of(made: object) -> str:
    """Return a user's word for the backend *made*: its scheme, or else its class."""
    kind = type(made)
    homes = {scheme: home.path for scheme, home in BUILT_IN.items()}
    homes |= {point.name: point.value.partition("[")[0].strip() for point in _offers()}
    for scheme, path in homes.items():
        module, _, name = path.partition(":")
        if name == kind.__qualname__ and f"{kind.__module__}.".startswith(f"{module}."):
            return scheme
    return kind.__name__


def schemes() -> list[str]:
    """Return every scheme: distlock's, then the schemes of the installed distributions."""
    return [*BUILT_IN, *sorted({point.name for point in _offers()} - BUILT_IN.keys())]


def _offers() -> list[EntryPoint]:
    try:
        return list(entry_points(group=GROUP))
    except Exception as error:
        # A single installed distribution with an unreadable file makes entry_points() raise.
        raise ConfigurationError(
            f"The backends of the installed distributions can't be listed: {error!r}. Repair or uninstall "
            "the distribution whose entry_points.txt is broken."
        ) from error


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
