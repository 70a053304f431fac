"""What an operator looks at in an ensemble: its hosts, and how long its sessions are."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.findings import Finding
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.line import Line


def unmade(line: Line, deadline: Deadline) -> Finding | None:
    """What an operator is told where no lock was ever taken; None: one was."""
    if line.looking.is_made(deadline):
        return None
    return Finding(
        "warning",
        "nodes",
        f"Nothing has been locked at {line.session.address.shown} yet.",
        "The first lock makes the nodes that are missing. If the site has locked something already, compare "
        "hosts and path with those in its settings.",
    )


def examine(line: Line) -> Iterator[Finding]:
    """*line*: what has a session there."""
    hosts = line.session.address.hosts.split(",")
    if len(hosts) == 1:
        yield Finding(
            "warning",
            "ensemble",
            f"One host is named, {hosts[0]}: while it is away no lock can be taken.",
            "Name three or five hosts of one ensemble: zookeeper://h1,h2,h3/shop.",
        )
    else:
        yield Finding("ok", "ensemble", f"{len(hosts)} hosts are named.")
    ttl, granted = line.session.ttl, line.session.wire.session_timeout
    said = f"The ensemble grants {granted:g} s, and ttl is {ttl:g} s."
    if granted > 2 * ttl:
        yield Finding(
            "warning",
            "session",
            f"{said} A process that crashes keeps its locks so long.",
            "Lower minSessionTimeout or tickTime on the servers.",
        )
    else:
        yield Finding("ok", "session", said)
