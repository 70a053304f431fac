"""The holder of a fence row, and those that wait for it, as far as the database tells.

PostgreSQL does: a row names the transaction that has locked it, and each transaction that runs is listed with
its connection. A waiter has a lock on the row's place, or waits for that or in the row's line. Readers have
their part of the line, and what the row names may be a group of them. The others tell less, each in a way of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from distlock.backends.inspectable import MOST_SHOWN, KeyState, SeenProcess, StatusRow
from distlock.errors import ConfigurationError
from distlock.fence.row import TABLE, key_of
from distlock.fence.statements import NUMBER, Connection, Rows
from distlock.terms import READ

#: Where to look instead.
_ELSEWHERE = {
    "mariadb": "its transactions are in information_schema.innodb_trx, and their waits in innodb_lock_waits",
    "mysql": "its locked rows are in performance_schema.data_locks, and the waits in sys.innodb_lock_waits",
    "sqlite": "it locks the whole file, and 'lsof' names the processes that have it open",
}

# A number of a group of transactions may be that of one that runs: so that one has to have locked some row.
_HAS_LOCKED = f"""EXISTS (
    SELECT FROM pg_locks AS t
    WHERE t.pid = s.pid AND t.locktype = 'relation' AND t.relation = '{TABLE}'::regclass AND t.granted
    AND t.mode <> 'AccessShareLock'
)"""
# A copy of this database, as each process of a test suite may have one, has the same numbers for all of it.
_HERE = "s.datname = current_database()"
# A transaction holds the lock on its own id exclusively. Waiters share that lock for a moment when it ends.
_HOLDER = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = f.xmax AND l.mode = 'ExclusiveLock'
JOIN pg_stat_activity AS s ON s.pid = l.pid AND {_HERE} AND age(s.backend_xid) >= age(f.xmax)
WHERE {_HAS_LOCKED}
"""
# A number has 32 bits, and the function that tells what became of it wants 64.
_RUNS = f"""f.xmax::text <> '0' AND 'in progress' = CASE WHEN age(f.xmax) > 0 THEN (
    SELECT txid_status(n + mod(f.xmax::text::bigint - mod(n, {1 << 32}) + {3 << 31}, {1 << 32}) - {1 << 31})
    FROM txid_snapshot_xmax(txid_current_snapshot()) AS n
) END"""  # noqa: S608
_NESTED_HOLDER = f"""
FROM {TABLE} AS f
JOIN pg_stat_activity AS s ON {_HERE} AND age(s.backend_xid) > age(f.xmax)
WHERE f.xmax::text = %s AND {_RUNS} AND {_HAS_LOCKED}
"""
_WAITER = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON l.locktype = 'tuple' AND l.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || l.page || ',' || l.tuple || ')')::tid
JOIN pg_stat_activity AS s ON s.pid = l.pid AND {_HERE}
    AND EXISTS (SELECT FROM pg_locks AS w WHERE w.pid = l.pid AND NOT w.granted)
"""
# The line is an advisory lock, of which these are the halves of its number.
_IN_LINE = f"""l.locktype = 'advisory' AND l.objsubid = 1
    AND (l.classid::bigint << 32 | l.objid::bigint) = {NUMBER.format("f.id")}"""
_LINE = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON {_IN_LINE}
JOIN pg_stat_activity AS s ON s.pid = l.pid AND {_HERE}
"""
_STANDS = f"{_LINE} AND NOT l.granted"
# One that waits for the row still has its part of the line, too.
_READER = f"""
{_LINE} AND l.granted AND l.mode = 'ShareLock' AND NOT EXISTS (
    SELECT FROM pg_locks AS q
    WHERE q.pid = l.pid AND q.locktype = 'tuple' AND q.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || q.page || ',' || q.tuple || ')')::tid
)
"""
_WHO = "s.pid, s.application_name, COALESCE(host(s.client_addr), ''), s.client_port"
# Other users' connections hide their times. Then the time is now.
_SINCE = "EXTRACT(EPOCH FROM COALESCE(s.xact_start, now()))::float8"
_WAITS_SINCE = "EXTRACT(EPOCH FROM COALESCE(s.query_start, now()))::float8"
# Nothing but the names of the table and its columns is put in.
_IS_WAITED_FOR = f"""EXISTS (
    SELECT FROM pg_locks AS w JOIN pg_locks AS q ON q.pid = w.pid
    WHERE w.locktype = 'transactionid' AND w.transactionid = s.backend_xid AND NOT w.granted
    AND q.locktype = 'tuple' AND q.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || q.page || ',' || q.tuple || ')')::tid
)"""
_SHOWN = f"f.number + 1, s.backend_xid::text, {_SINCE}, {_WHO}"
_READ = f"SELECT f.number, s.backend_xid::text, {_SINCE}, {_WHO} {_READER} WHERE f.id = %s ORDER BY 3, 4"
# A shared row names one of its readers, or the number of their group.
_IS_SHARED = f"EXISTS (SELECT FROM pg_locks AS l WHERE {_IN_LINE} AND l.granted AND l.mode = 'ShareLock')"
_HELD = f"SELECT {_IS_SHARED}, {_SHOWN} {_HOLDER} AND f.id = %s"
_HELD_NESTED = f"SELECT {_IS_WAITED_FOR}, {_SHOWN} {_NESTED_HOLDER} AND f.id = %s ORDER BY 1 DESC, s.pid"
_RUNNING = f"SELECT f.xmax::text FROM {TABLE} AS f WHERE {_RUNS} AND f.id = %s"  # noqa: S608
_IS_LISTED = """
SELECT 1 FROM pg_locks
WHERE locktype = 'transactionid' AND transactionid::text = %s AND mode = 'ExclusiveLock'
"""
_WAITING = f"""
SELECT l.granted, {_WAITS_SINCE}, {_WHO} {_WAITER} WHERE f.id = %s
UNION ALL
SELECT false, {_WAITS_SINCE}, {_WHO} {_STANDS} WHERE f.id = %s
ORDER BY 1 DESC, 2
"""
_LISTED = f"""
SELECT f.id, f.name, {_SINCE}, 0, {_WHO} {_HOLDER} AND f.namespace = %s
UNION ALL
SELECT f.id, f.name, {_WAITS_SINCE}, 1, {_WHO} {_WAITER} WHERE f.namespace = %s
UNION ALL
SELECT f.id, f.name, {_WAITS_SINCE}, 1, {_WHO} {_STANDS} WHERE f.namespace = %s
"""
_READ_LISTED = f"SELECT f.id, f.name, {_SINCE}, {_WHO} {_READER} WHERE f.namespace = %s"
_RUNNING_UNLISTED = f"""
SELECT f.name, f.id FROM {TABLE} AS f WHERE {_RUNS} AND f.namespace = %s
AND NOT EXISTS (
    SELECT FROM pg_locks AS l
    WHERE l.locktype = 'transactionid' AND l.transactionid = f.xmax AND l.mode = 'ExclusiveLock'
)
"""  # noqa: S608
_END = "SELECT pg_terminate_backend(s.pid)"
_OF = "f.id = %s AND s.backend_xid::text = ANY(string_to_array(%s, ','))"


def key_state(connection: Connection, namespace: str, name: str) -> KeyState:
    """Return the transactions that have locked the row of *name* or wait for it, the next one first.

    A writer's number is the one that it writes, and readers' is the row's. `KeyState.transaction` has the ids
    of all holders, with commas between. A row that a running transaction has made is invisible: which of
    several transactions made it may be unknown while nobody waits, and `KeyState.transaction` is "" then.
    Raises `ConfigurationError` for a database that does not tell.
    """
    _refuse_others(connection)
    row = key_of(namespace, name)
    held = _held(connection, row)
    readers = [] if held and not held[0][0] else connection.execute(_READ, [row])
    held = held or ([] if readers else _held_nested(connection, row))
    waiting = connection.execute(_WAITING, [row, row])
    queue = [
        SeenProcess(_process(who), row=StatusRow(name, waiting=1, waiting_since=since))
        for _, since, *who in waiting[:MOST_SHOWN]
    ]
    if readers:
        first, *beside = [_reader(name, since, who) for _, _, since, *who in readers]
        return KeyState(
            first,
            int(readers[0][0]),
            queue=queue,
            waiting=len(waiting),
            transaction=",".join(str(transaction) for _, transaction, *_ in readers),
            mode=READ,
            others=len(beside),
            beside=beside[: MOST_SHOWN - 1],
        )
    if not held:
        return KeyState(queue=queue, waiting=len(waiting))
    number, transaction = held[0][1:3]
    holder = _holder(name, [who for _, _, _, *who in held])
    known = transaction if len(held) == 1 else ""
    return KeyState(holder, int(number), queue=queue, waiting=len(waiting), transaction=known)


def _held(connection: Connection, row: str) -> Rows:
    """Return the transaction that has locked *row* by itself, if one has.

    PostgreSQL writes a row's xmax in place, and the query reads it more than once. If the row passes from one
    transaction to the next meanwhile, the query gives both.
    """
    while len(found := connection.execute(_HELD, [row])) > 1:
        pass
    return found


def _nested(connection: Connection, row: str) -> str:
    """Return the id with which *row* is locked, if that is a savepoint that was released; else "".

    What is locked names its transaction, or a savepoint of it. Both are listed before the row has their
    number: those that run and are not listed then are savepoints, which are listed no more.
    """
    for (number,) in connection.execute(_RUNNING, [row]):
        if not connection.execute(_IS_LISTED, [number]):
            return str(number)
    return ""


def _held_nested(connection: Connection, row: str) -> Rows:
    """As `_HELD`, of a row that was locked in a savepoint: the transactions that may have done it.

    It is one of those that are older and have locked rows: the one that is waited for, if one is.
    """
    nested = _nested(connection, row)
    # Without one, it was locked meanwhile, or has been let go.
    found = connection.execute(_HELD_NESTED, [nested, row]) if nested else _held(connection, row)
    return found[:1] if found and found[0][0] else found


def end(connection: Connection, namespace: str, name: str, transaction: str) -> bool:
    """End the connection whose *transaction* has locked the row of *name*. False: it has ended before.

    *transaction*: as `key_state` gives it. Of readers all that are there still are ended.
    """
    row = key_of(namespace, name)
    if "," not in transaction and connection.execute(f"{_END} {_HOLDER} AND {_OF}", [row, transaction]):
        return True
    if connection.execute(f"{_END} {_READER} WHERE {_OF}", [row, transaction]):
        return True
    found = _held_nested(connection, row)
    if len(found) != 1 or found[0][2] != transaction:
        # It may be one of several, or it has ended.
        return False
    nested = _nested(connection, row)
    return bool(
        nested and connection.execute(f"{_END} {_NESTED_HOLDER} AND {_OF}", [nested, row, transaction])
    )


def listed(connection: Connection, namespace: str, before: str) -> Iterator[SeenProcess]:
    """Yield the rows of *namespace* that are locked or waited for, of names that begin with *before*.

    Long names are shown as they are written in the table: with a digest for their end.
    """
    _refuse_others(connection)
    read = set()
    for row_key, written, since, *who in connection.execute(_READ_LISTED, [namespace]):
        read.add(row_key)
        if (name := unquote(written)).startswith(before):
            yield _reader(name, since, who)
    for row_key, written, since, waits, *who in connection.execute(_LISTED, [namespace] * 3):
        # A shared row names one of its readers, or the number of their group.
        if (waits or row_key not in read) and (name := unquote(written)).startswith(before):
            row = (
                StatusRow(name, waiting=1, waiting_since=since)
                if waits
                else StatusRow(name, held_since=since)
            )
            yield SeenProcess(_process(who), row=row)
    for written, row_key in connection.execute(_RUNNING_UNLISTED, [namespace])[:MOST_SHOWN]:
        if row_key in read:
            continue
        if (name := unquote(written)).startswith(before) and (held := _held_nested(connection, row_key)):
            yield _holder(name, [who for _, _, _, *who in held])


def _reader(name: str, since: float, who: list[Any]) -> SeenProcess:
    """Return a connection that shares the row of *name*, and for how long its transaction has run."""
    return SeenProcess(_process(who), row=StatusRow(name, held_since=since, mode=READ, holding=1))


def _holder(name: str, holders: list[list[Any]]) -> SeenProcess:
    """The connection that has locked the row of *name*, and since when; or that it is one of several."""
    [since, *who], *others = holders
    if not others:
        return SeenProcess(_process(who), row=StatusRow(name, held_since=since))
    several = " or ".join(str(pid) for _, pid, *_ in holders)
    process = f"{several} of PostgreSQL, which can't tell a savepoint's until somebody waits"
    return SeenProcess(process, row=StatusRow(name, held_since=min(since, *(one[0] for one in others))))


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
