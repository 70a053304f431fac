"""What an operator looks at in a MariaDB or MySQL server: what may let two in, or give a fence out twice."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.advisory.dialect import Say
from distlock.backends.advisory.examining import connections
from distlock.backends.findings import Finding

# Any user may ask this.
_ASKED = (
    "SHOW VARIABLES WHERE Variable_name IN "
    "('version', 'innodb_flush_log_at_trx_commit', 'max_connections', 'wsrep_on'); "
    "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
)


def examine(say: Say, sessions: int) -> Iterator[Finding]:
    """*sessions*: how many a process of ours may open."""
    told = {str(name).lower(): value or "" for rows in say(_ASKED) for name, value in rows}
    version = told["version"]
    maker = "MariaDB" if "MariaDB" in version else "MySQL"
    yield Finding("ok", "server", f"{maker} {version.partition('-')[0]}.")
    flushed = told["innodb_flush_log_at_trx_commit"]
    said = f"innodb_flush_log_at_trx_commit is {flushed}"
    if flushed == "1":
        yield Finding("ok", "persistence", f"{said}: a crash gives no fence's number out again.")
    else:
        yield Finding(
            "warning",
            "persistence",
            f"{said}: a crash may lose the fences of its last second, and give them out again.",
            "Set innodb_flush_log_at_trx_commit 1.",
        )
    if told.get("wsrep_on") == "ON":
        yield Finding(
            "warning",
            "cluster",
            "It is a node of a Galera cluster: processes that reach two nodes both have a lock.",
            "Give all processes the same node, and fence what must not be done twice (fence=True).",
        )
    yield connections(int(told["threads_connected"]), int(told["max_connections"]), sessions)
