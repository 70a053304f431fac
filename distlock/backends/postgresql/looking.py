"""What PostgreSQL tells any user of advisory locks: their sessions, and what those are called."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distlock.backends.advisory.dialect import Say
from distlock.backends.advisory.standing import Standing
from distlock.backends.postgresql.address import SAYS_WHO
from distlock.backends.postgresql.statements import CLASS, TABLE

_WHO = re.compile(rf"{SAYS_WHO}:(\d+)@(.+)")


def read(say: Say, which: str) -> Iterator[Standing]:
    """Yield the names of the table, as n, for which *which* is true."""
    [rows] = say(
        "SELECT n.name, l.pid, l.granted, extract(epoch FROM clock_timestamp() - l.waitstart), "  # noqa: S608
        "coalesce(a.application_name, ''), coalesce(host(a.client_addr) || ':' || a.client_port, '') "
        f"FROM pg_locks l JOIN {TABLE} n ON n.id = l.objid::bigint JOIN pg_stat_activity a USING (pid) "
        "WHERE l.locktype = 'advisory' "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND l.classid = {CLASS} AND l.objsubid = 2 AND {which} "
        "ORDER BY n.name, l.granted DESC, l.waitstart, l.pid"
    )
    for name, pid, granted, waited, application, address in rows:
        said = _WHO.fullmatch(application or "")
        yield Standing(
            name or "",
            int(pid or 0),
            None if granted == "t" else float(waited or 0),
            f"{pid} of PostgreSQL, for {application or 'a client'}" + (f" at {address}" if address else ""),
            said[2] if said else "",
            int(said[1]) if said else 0,
        )
