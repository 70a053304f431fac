"""The transactions that have locked a fence row, and those that wait for it, as far as the database tells.

PostgreSQL tells: the row's xmax is the id of the transaction that has locked it, and pg_stat_activity lists
each transaction with its connection. A waiter has or awaits a tuple lock of the row, or awaits the row's
advisory lock (see `distlock.fence.statements`). Readers share the advisory lock, and then xmax may be the id
of a group of them. Other databases tell less, each in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from distlock.backends.inspectable import MOST_SHOWN, KeyState, SeenProcess, StatusRow
from distlock.errors import ConfigurationError
from distlock.fence.stamps import TABLE, key_of
from distlock.fence.statements import NUMBER, Connection, Rows
from distlock.terms import READ

#: Where to look on the other databases.
_ELSEWHERE = {
    "mariadb": "its transactions are in information_schema.innodb_trx, and their waits in innodb_lock_waits",
    "mysql": "its locked rows are in performance_schema.data_locks, and the waits in sys.innodb_lock_waits",
    "sqlite": "it locks the whole file, and 'lsof' names the processes that have it open",
}

# The id of a group may equal the id of an unrelated transaction. So check that the transaction has locked a
# fence row.
_HAS_LOCKED = f"""EXISTS (
    SELECT FROM pg_locks AS t
    WHERE t.pid = s.pid AND t.locktype = 'relation' AND t.relation = '{TABLE}'::regclass AND t.granted
    AND t.mode <> 'AccessShareLock'
)"""
# Copies of a database, as test suites make them, have the same ids for their tables. So look at this database
# only.
_HERE = "s.datname = current_database()"
# A transaction holds the lock on its own id exclusively. When it ends, waiters share that lock for a moment.
_HOLDER = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = f.xmax AND l.mode = 'ExclusiveLock'
JOIN pg_stat_activity AS s ON s.pid = l.pid AND {_HERE} AND age(s.backend_xid) >= age(f.xmax)
WHERE {_HAS_LOCKED}
"""
# xmax has 32 bits, but txid_status() takes 64: the missing ones come from the current snapshot.
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
# The row's advisory lock: pg_locks shows its number in two halves.
_IS_ADVISORY = f"""l.locktype = 'advisory' AND l.objsubid = 1
    AND (l.classid::bigint << 32 | l.objid::bigint) = {NUMBER.format("f.id")}"""
_ADVISORY = f"""
FROM {TABLE} AS f
JOIN pg_locks AS l ON {_IS_ADVISORY}
JOIN pg_stat_activity AS s ON s.pid = l.pid AND {_HERE}
"""
_ADVISORY_WAITER = f"{_ADVISORY} AND NOT l.granted"
# A reader that still waits for the row already shares the advisory lock. It is left out here.
_READER = f"""
{_ADVISORY} AND l.granted AND l.mode = 'ShareLock' AND NOT EXISTS (
    SELECT FROM pg_locks AS q
    WHERE q.pid = l.pid AND q.locktype = 'tuple' AND q.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || q.page || ',' || q.tuple || ')')::tid
)
"""
_WHO = "s.pid, s.application_name, COALESCE(host(s.client_addr), ''), s.client_port"
# PostgreSQL may hide the times of other users' connections. Then take the present time.
_SINCE = "EXTRACT(EPOCH FROM COALESCE(s.xact_start, now()))::float8"
_WAITS_SINCE = "EXTRACT(EPOCH FROM COALESCE(s.query_start, now()))::float8"
# Only the names of the table and its columns are interpolated.
_IS_WAITED_FOR = f"""EXISTS (
    SELECT FROM pg_locks AS w JOIN pg_locks AS q ON q.pid = w.pid
    WHERE w.locktype = 'transactionid' AND w.transactionid = s.backend_xid AND NOT w.granted
    AND q.locktype = 'tuple' AND q.relation = '{TABLE}'::regclass
    AND f.ctid = ('(' || q.page || ',' || q.tuple || ')')::tid
)"""
_SHOWN = f"f.number + 1, s.backend_xid::text, {_SINCE}, {_WHO}"
_READ = f"SELECT f.number, s.backend_xid::text, {_SINCE}, {_WHO} {_READER} WHERE f.id = %s ORDER BY 3, 4"
# The xmax of a shared row is the id of one reader, or of a group of them.
_IS_SHARED = f"EXISTS (SELECT FROM pg_locks AS l WHERE {_IS_ADVISORY} AND l.granted AND l.mode = 'ShareLock')"
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
SELECT false, {_WAITS_SINCE}, {_WHO} {_ADVISORY_WAITER} WHERE f.id = %s
ORDER BY 1 DESC, 2
"""
_LISTED = f"""
SELECT f.id, f.name, {_SINCE}, 0, {_WHO} {_HOLDER} AND f.namespace = %s
UNION ALL
SELECT f.id, f.name, {_WAITS_SINCE}, 1, {_WHO} {_WAITER} WHERE f.namespace = %s
UNION ALL
SELECT f.id, f.name, {_WAITS_SINCE}, 1, {_WHO} {_ADVISORY_WAITER} WHERE f.namespace = %s
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
    """Return the transactions that have locked the row of *name*, and those that wait for it, in order.

    `KeyState.number` is the number that the writer writes; with readers, it is the row's.
    `KeyState.transaction` has the ids of all holders, separated by commas. It is "" if the row was locked in
    a savepoint that is over, and nobody waits yet: then it is unknown which of several transactions did that.
    A row that was inserted and not committed is invisible. Raises `ConfigurationError` if the database is not
    PostgreSQL.
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
    """Return the transaction that has locked *row* outside of a savepoint, if there is one.

    PostgreSQL writes a row's xmax in place, and the query reads it more than once. If the row passes from one
    transaction to the next meanwhile, the query returns both, and is repeated.
    """
    while len(found := connection.execute(_HELD, [row])) > 1:
        pass
    return found


def _released_savepoint(connection: Connection, row: str) -> str:
    """Return the xmax of *row* if that is the id of a savepoint that was released; else "".

    xmax is the id of a transaction or of a savepoint. pg_locks lists an id before a row gets it as xmax. So
    an id that still runs, but is not listed, is that of a savepoint that was released.
    """
    for (number,) in connection.execute(_RUNNING, [row]):
        if not connection.execute(_IS_LISTED, [number]):
            return str(number)
    return ""


def _held_nested(connection: Connection, row: str) -> Rows:
    """Return the transactions that may have locked *row* in a savepoint that was released, as `_held` does.

    They are the transactions that are older than the savepoint and have locked fence rows. If others wait for
    one of them because of *row*, return only that one.
    """
    savepoint = _released_savepoint(connection, row)
    # If there is no such savepoint any more, the row was locked or unlocked meanwhile.
    found = connection.execute(_HELD_NESTED, [savepoint, row]) if savepoint else _held(connection, row)
    return found[:1] if found and found[0][0] else found


def end(connection: Connection, namespace: str, name: str, transaction: str) -> bool:
    """End the connection whose *transaction* has locked the row of *name*. Return False if there is none.

    *transaction*: `KeyState.transaction`. If it names several readers, end all that still share the row.
    """
    row = key_of(namespace, name)
    if "," not in transaction and connection.execute(f"{_END} {_HOLDER} AND {_OF}", [row, transaction]):
        return True
    if connection.execute(f"{_END} {_READER} WHERE {_OF}", [row, transaction]):
        return True
    found = _held_nested(connection, row)
    if len(found) != 1 or found[0][2] != transaction:
        # The holder has ended, or it is unknown which of several transactions it is.
        return False
    savepoint = _released_savepoint(connection, row)
    return bool(
        savepoint and connection.execute(f"{_END} {_NESTED_HOLDER} AND {_OF}", [savepoint, row, transaction])
    )


def listed(connection: Connection, namespace: str, before: str) -> Iterator[SeenProcess]:
    """Yield the holders and waiters of all rows in *namespace* whose names begin with *before*.

    Long names are shown as in the table, with a digest in place of their end.
    """
    _refuse_others(connection)
    read = set()
    for row_key, written, since, *who in connection.execute(_READ_LISTED, [namespace]):
        read.add(row_key)
        if (name := unquote(written)).startswith(before):
            yield _reader(name, since, who)
    for row_key, written, since, waits, *who in connection.execute(_LISTED, [namespace] * 3):
        # The xmax of a shared row may be the id of a reader, which was yielded already.
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
    """Return what to show of a connection that shares the row of *name*. *since*: its transaction's start."""
    return SeenProcess(_process(who), row=StatusRow(name, held_since=since, mode=READ, holding=1))


def _holder(name: str, holders: list[list[Any]]) -> SeenProcess:
    """Return what to show of *holders*: the connection that has locked the row, or several possible ones."""
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
    """Return a description of a connection. It has the id of PostgreSQL's process, not of the client's."""
    pid, application, address, port = who
    at = f"{address}:{port}" if address else "this host"
    return f"{pid} of PostgreSQL, for {application or 'a client'} at {at}"
