"""The holder of a fence row, and those that wait for it, as far as the database tells.

PostgreSQL does: a row names the transaction that has locked it, and each transaction that runs is listed with
its connection. A waiter has a lock on the row's place, or waits for that. The others tell less, each in a way
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight
from distlock.errors import ConfigurationError
from distlock.fence.row import TABLE, key_of
from distlock.fence.statements import Connection

#: Where to look instead.
_ELSEWHERE = {
    "mariadb": "its transactions are in information_schema.innodb_trx, and their waits in innodb_lock_waits",
    "mysql": "its locked rows are in performance_schema.data_locks, and the waits in sys.innodb_lock_waits",
    "sqlite": "it locks the whole file, and 'lsof' names the processes that have it open",
}

# A number of a group of transactions may be that of one that runs: so that one has to know the table, too.
_HOLDER = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = f.xmax AND l.granted
JOIN pg_stat_activity AS s ON s.pid = l.pid
WHERE EXISTS (
    SELECT FROM pg_locks AS t
    WHERE t.pid = l.pid AND t.locktype = 'relation' AND t.relation = '{TABLE}'::regclass AND t.granted
)
"""
_WAITER = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON l.locktype = 'tuple' AND l.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || l.page || ',' || l.tuple || ')')::tid
JOIN pg_stat_activity AS s ON s.pid = l.pid AND s.wait_event_type = 'Lock'
"""
_WHO = "s.pid, s.application_name, COALESCE(host(s.client_addr), ''), s.client_port"
_SINCE = "EXTRACT(EPOCH FROM s.xact_start)::float8"
# Nothing but the names of the table and its columns is put in.
_HELD = f"SELECT f.number + 1, l.transactionid::text, {_SINCE}, {_WHO} {_HOLDER} AND f.id = %s"
_WAITING = f"SELECT EXTRACT(EPOCH FROM s.query_start)::float8, {_WHO} {_WAITER} WHERE f.id = %s"  # noqa: S608
_IN_ORDER = "ORDER BY l.granted DESC, s.query_start"
_LISTED = f"""
SELECT f.name, {_SINCE}, 0, {_WHO} {_HOLDER} AND f.domain = %s
UNION ALL
SELECT f.name, EXTRACT(EPOCH FROM s.query_start)::float8, 1, {_WHO} {_WAITER} WHERE f.domain = %s
"""  # noqa: S608
_BREAK = f"SELECT pg_terminate_backend(s.pid) {_HOLDER} AND f.id = %s AND l.transactionid::text = %s"


def sight(connection: Connection, domain: str, name: str) -> tuple[Sight, str]:
    """The transaction that has locked the row of *name*, and those that wait for it, the next one first.

    Also what the database calls that transaction: its number is the one that it writes, and one that comes
    after a ROLLBACK writes the same. A row that was made by a transaction that still runs is not to be seen.
    Raises `ConfigurationError` for a database that does not tell.
    """
    _refuse_others(connection)
    row = key_of(domain, name)
    held = connection.execute(_HELD, [row])
    waiting = connection.execute(f"{_WAITING} {_IN_ORDER}", [row])
    queue = [
        Seen(_process(who), row=Row(name, waiting=1, waiting_since=since))
        for since, *who in waiting[:MOST_SHOWN]
    ]
    if not held:
        return Sight(queue=queue, waiting=len(waiting)), ""
    number, transaction, since, *who = held[0]
    holder = Seen(_process(who), row=Row(name, held_since=since))
    return Sight(holder, int(number), queue=queue, waiting=len(waiting)), transaction


def end(connection: Connection, domain: str, name: str, transaction: str) -> bool:
    """End the connection whose *transaction* has locked the row of *name*. False: it has ended before."""
    return bool(connection.execute(_BREAK, [key_of(domain, name), transaction]))


def listed(connection: Connection, domain: str, before: str) -> Iterator[Seen]:
    """The rows of *domain* that are locked or waited for, of names that begin with *before*.

    Long names are shown as they are written in the table: with a digest for their end.
    """
    _refuse_others(connection)
    for written, since, waits, *who in connection.execute(_LISTED, [domain, domain]):
        if (name := unquote(written)).startswith(before):
            row = Row(name, waiting=1, waiting_since=since) if waits else Row(name, held_since=since)
            yield Seen(_process(who), row=row)


def _refuse_others(connection: Connection) -> None:
    if connection.kind != "postgresql":
        raise ConfigurationError(
            f"Only PostgreSQL tells who holds a row. On {connection.kind}: "
            f"{_ELSEWHERE.get(connection.kind, 'look into its documentation')}."
        )


def _process(who: list[Any]) -> str:
    """The connection, as the database calls it: PostgreSQL knows no process but its own."""
    pid, application, address, port = who
    at = f"{address}:{port}" if address else "this host"
    return f"{pid} of PostgreSQL, for {application or 'a client'} at {at}"
