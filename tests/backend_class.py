"""The class of a backend, found by the URL that a user writes, wherever its module is."""

from __future__ import annotations

from typing import Any

import distlock
from distlock.testing.waits import engine_of

#: A URL of each scheme that distlock brings along.
EXAMPLES = {
    "memory": "memory://",
    "file": "file:///nowhere",
    "redis": "redis://localhost",
    "rediss": "rediss://localhost",
    "unix": "unix:///run/redis.sock",
    "redis+cluster": "redis+cluster://localhost",
    "rediss+cluster": "rediss+cluster://localhost",
    "redlock": "redlock://a,b,c",
    "redlocks": "redlocks://a,b,c",
    "redis+sentinel": "redis+sentinel://localhost/shop",
    "rediss+sentinel": "rediss+sentinel://localhost/shop",
    "zookeeper": "zookeeper://localhost",
    "zookeepers": "zookeepers://localhost",
    "postgresql": "postgresql://user@localhost/shop",
    "mysql": "mysql://user@localhost/shop",
}


def backend_class(url: str) -> Any:
    """Return the class of the backends that `distlock.connect` makes for *url*. Connects to nothing."""
    return type(engine_of(distlock.connect(url)).backend)


def new_backend(url: str, **options: Any) -> Any:
    """Make a backend that no engine uses. *options* are its own."""
    return backend_class(url)(url, **options)
