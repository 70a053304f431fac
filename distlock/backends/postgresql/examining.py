"""What an operator looks at in a PostgreSQL server: what may give a fence out twice, or keep sessions out."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.advisory.dialect import Say
from distlock.backends.advisory.examining import connections
from distlock.backends.findings import Finding

# Any user may ask this.
_ASKED = (
    "SELECT current_setting('server_version'), current_setting('fsync'), "
    "current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), "
    "(SELECT sum(numbackends) FROM pg_stat_database WHERE datname IS NOT NULL), "
    "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
)


def examine(say: Say, sessions: int) -> Iterator[Finding]:
    """*sessions*: how many a process of ours may open."""
    [[[version, fsync, synchronous, standbys, here, most]]] = say(_ASKED)
    yield Finding("ok", "server", f"PostgreSQL {version}.")
    if fsync == "on":
        yield Finding("ok", "persistence", "fsync is on: a crash gives no fence's number out again.")
    else:
        yield Finding(
            "warning",
            "persistence",
            "fsync is off: a crash of its host may lose the numbers of fences, and give them out again.",
            "Set fsync on, or give the locks a server of their own.",
        )
    if standbys != "0" and not synchronous:
        yield Finding(
            "warning",
            "replication",
            f"Its standbys: {standbys}. One that takes over knows no locks, and may lack the last fences.",
            "Fence what must not be done twice (fence=True), and set synchronous_standby_names.",
        )
    yield connections(int(here or 0), int(most or 0), sessions)
