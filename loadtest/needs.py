"""``python -m loadtest.needs``: print the Debian packages that a run needs, for ``scripts/demo``.

It runs before anything is installed, so it imports only modules that need no third party.
"""

from __future__ import annotations

import argparse
import sys

from loadtest.options import parse
from loadtest.scenario import VISITS
from loadtest.servers import lock_services
from loadtest.servers.databases import DATABASES
from loadtest.servers.lock_services import BACKENDS
from loadtest.stories import FAILOVER

#: The exit status after the help was printed: ``scripts/demo`` has nothing else to do.
TOLD, COULD_NOT_RUN = 4, 3
SERVERS = {
    "redis": "redis-server",
    "cluster": "redis-server",
    "redlock": "redis-server",
    "sentinel": "redis-server",
    "zookeeper": "zookeeper",
    "postgresql": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
}


def needs(options: argparse.Namespace) -> list[str]:
    """Return the packages, by the names that ``scripts/setup.sh`` knows."""
    # If none is chosen, the matrix needs all lock services and databases, and the story of failovers needs
    # those that outages strike.
    every = lock_services.STRUCK_BACKENDS if options.story == FAILOVER else BACKENDS
    started = {options.backend} if options.backend else set(every)
    started |= {options.database} if options.database else set(DATABASES)
    if options.visit in [visit for visit in VISITS.values() if visit.in_redis]:
        started.add("redis")
    packages = dict.fromkeys(package for server, package in SERVERS.items() if server in started)
    return ["python3", "nginx", *packages]


def main(arguments: list[str] | None = None) -> int:
    try:
        options = parse(arguments)
    except SystemExit as end:
        return COULD_NOT_RUN if end.code else TOLD
    print(*needs(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
