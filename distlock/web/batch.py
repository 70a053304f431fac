"""A batch: requests of this process that wait for one name share one transaction, one COMMIT and one fence.

The first member has the lock, and begins the transaction. Each member does its part of the work in its own
thread, and then lets the next request of the wait queue join. After the last part the first member commits,
and all members learn the outcome. The package of the framework defines what a part is, and what the members
pass to each other, such as a database connection.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from distlock.engine.sans_io import ThreadParker
from distlock.errors import BatchFailed, ConfigurationError, LockLost, OutcomeUnknown
from distlock.grants.current import note_asked_for, was_asked_for
from distlock.grants.grant import Grant
from distlock.terms import Seat

C = TypeVar("C")

#: Rolls back and closes what the members pass to each other.
CleanUp = Callable[[], object]

#: The ``on_commit`` hooks that a part leaves for the time after COMMIT.
Hooks = list[Any]

_COMMITTED = object()


class BatchSeat(Seat):
    """The place of one request in a batch, as its first member or as a later one."""

    __slots__ = ("committed_batch", "over", "parker")

    def __init__(self, key: object) -> None:
        super().__init__(key)
        #: Where the member sleeps until the outcome of the transaction is known.
        self.parker = ThreadParker()
        #: Whether the member's part is over, or will never begin.
        self.over = False
        #: The batch that the member has committed as the first one; None: it has not.
        self.committed_batch: Batch[Any] | None = None

    def leave(self, grant: Grant | None = None) -> None:
        """End the part of a later member, so that the next part begins. Further calls do nothing.

        *grant*: the grant of that member. If the member's code asked for it, the grant of the batch counts as
        asked for, too: see `distlock.grants.current.was_asked_for`.
        """
        if isinstance(self.batch, Batch) and not self.over:
            self.over = True
            if grant is not None and was_asked_for(grant):
                note_asked_for(self.batch.grant)
            self.batch.go_on()

    def end(self) -> None:
        """End a later member's part, or let the others answer if the first one has committed.

        Called when the member has released the lock: before the release, the answers of the others would
        delay it, and with it the next holder. May be called twice.
        """
        self.leave()
        if self.committed_batch is not None:
            self.committed_batch.committed()


class Batch(Generic[C]):
    """One batch, from the first member's lock to the outcome of its transaction.

    *grant*: the first member's. *carried*: what the members pass to each other. *most*: the most members.
    """

    def __init__(self, grant: Grant, carried: C, most: int) -> None:
        self.grant = grant
        self.carried = carried
        self._places = most - 1
        #: Where the first member sleeps until the last part is over.
        self._over = ThreadParker()
        self._are_over = False
        #: Called after the last part, if the first member has given up before.
        self._clean_up: CleanUp = lambda: None
        self._mutex = threading.Lock()
        self._waiting: list[ThreadParker] = []
        #: `_COMMITTED`, or the error that prevented COMMIT; None: the outcome is not known yet.
        self._outcome: object = None
        self._committing = False
        #: Whether the savepoint of the next part is already set.
        self.prepared = False
        #: Why no further part can begin and nothing can be committed; None: both can be done.
        self.broken: Exception | None = None
        #: Values that parts leave for later parts or for the time after COMMIT, by key.
        self.left_values: dict[object, object] = {}
        self._saving = threading.Lock()
        #: How many members need the lock after COMMIT, too.
        self._staying = 0
        self._nobody_stays = ThreadParker()

    # -- the parts, one after the other ----------------------------------------------------------

    def go_on(self) -> None:
        """End a part. Let the next request of the queue join; if none may, wake the first member."""
        if self.broken is None and self._outcome is None and self._places > 0:
            self._places -= 1
            if self.grant._take_along(self):
                return
        with self._mutex:
            self._are_over = True
        self._clean_up()
        self._over.wake()

    @property
    def is_needed_after_commit(self) -> bool:
        """Whether a member still needs the lock after COMMIT."""
        return self._staying > 0

    def break_off(self, why: Exception) -> None:
        """Note that the transaction can't be continued or committed after a part, because of *why*."""
        self.broken = self.broken or why

    def stay(self) -> None:
        """Note that the running part needs the lock after COMMIT, until it calls `stayed`."""
        self._staying += 1

    def save_once(self, key: object, save: Callable[[Any], object]) -> None:
        """Call *save* with the value of `left_values` for *key*, once for all members, after COMMIT."""
        with self._saving:
            if key in self.left_values:
                save(self.left_values[key])
                del self.left_values[key]

    # -- the first -------------------------------------------------------------------------------

    def finish_parts(self, leave: Callable[[], CleanUp]) -> None:
        """Wait, in the first member, for the parts of the others, and check the lock before COMMIT.

        *leave*: called if the wait fails during a part, as when the lock is lost. The thread of that part
        still uses what the members pass to each other, so *leave* returns a function that cleans up when the
        part is over. Raises what prevents COMMIT: `LockLost`, `BatchFailed` or `OutcomeUnknown`.
        """
        self.go_on()
        try:
            while not self._are_over:
                self._over.wait(self._lease())
                self._look_after_lock()
                self._raise_outcome()
        except BaseException:
            with self._mutex:
                if not self._are_over:
                    self._clean_up = leave()
            raise
        if self.broken is not None:
            raise self.broken
        # An error here prevents COMMIT.
        self.grant.check()
        with self._mutex:
            self._committing = self._outcome is None
        self._raise_outcome()

    def committed(self) -> None:
        """Tell all members that the transaction was committed. A second call does nothing."""
        self._tell(_COMMITTED)

    def failed(self, error: BaseException, is_known: Callable[[BaseException], bool]) -> BaseException:
        """Tell the others that *error* has ended the transaction. Return what the first member raises.

        If `committed` was called before, only return *error*. *is_known*: returns whether the error of a
        COMMIT says that nothing was committed; if not, the outcome is unknown.
        """
        if self._outcome is _COMMITTED:
            return error
        if self._committing and not is_known(error):
            error = unknown(self.grant, error)
        self._tell(error)
        return self._seen_by_others(error) if isinstance(error, Exception) else error

    def wait_for_others(self) -> None:
        """Wait until no other member needs the lock after COMMIT, or until the lock is lost."""
        while True:
            with self._mutex:
                if not self._staying or self.grant.lost:
                    return
            self._nobody_stays.wait(self._lease())

    # -- the others ------------------------------------------------------------------------------

    def add_member(self, grant: Grant) -> None:
        """Let the *grant* of a later member share the lock. Raises `LockLost` if the lock is lost already."""
        grant._join(self.grant)
        grant.check()

    def wait(self, seat: BatchSeat) -> None:
        """Wait for COMMIT, in a later member. Raises what prevented COMMIT.

        A part that hangs keeps the others waiting only until the lock is lost.
        """
        with self._mutex:
            self._waiting.append(seat.parker)
        while self._outcome is None:
            seat.parker.wait(math.inf if self._committing else self._lease())
            self._look_after_lock()
        self._raise_outcome()

    def stayed(self) -> None:
        """Note that a member does not need the lock any more: see `stay`."""
        with self._mutex:
            self._staying -= 1
        self._nobody_stays.wake()

    # --------------------------------------------------------------------------------------------

    def _look_after_lock(self) -> None:
        """Fail the batch if its lock is lost, because then it can't be committed any more."""
        with self._mutex:
            if self._outcome is None and not self._committing and self.grant.lost:
                self._outcome = LockLost(
                    f"The lock {_names(self.grant)} was lost before the COMMIT of the batch: "
                    f"{self.grant.why_lost}. Nothing was done."
                )

    def _lease(self) -> float:
        """Return the seconds until the lock may be lost, at least 0.1."""
        return max(0.1, self.grant.remaining())

    def _tell(self, outcome: object) -> None:
        with self._mutex:
            if self._outcome is None:
                self._outcome = outcome
            waiting, self._waiting = self._waiting, []
        for parker in waiting:
            parker.wake()

    def _raise_outcome(self) -> None:
        if isinstance(self._outcome, BaseException):
            raise self._seen_by_others(self._outcome)

    def _seen_by_others(self, error: BaseException) -> Exception:
        kinds = LockLost, BatchFailed, OutcomeUnknown
        kind: Any = next((one for one in kinds if isinstance(error, one)), BatchFailed)
        if kind is BatchFailed and type(error) is not BatchFailed:
            shown = _names(self.grant)
            text = f"The transaction that requests for the lock {shown} shared was rolled back: {error}"
        else:
            text = str(error)
        # An exception for each member: threads that raise the same one would write into one traceback.
        mine: Exception = kind(text)
        mine.__cause__ = error
        return mine


def unknown(grant: Grant, error: BaseException | None) -> OutcomeUnknown:
    """Return the error for a transaction with an unknown outcome."""
    found = OutcomeUnknown(
        f"What became of the transaction that requests for the lock {_names(grant)} shared is not known: it "
        f"may have been committed. {error or 'It had ended before its COMMIT.'}"
    )
    found.__cause__ = error
    return found


def _names(grant: Grant) -> str:
    return ", ".join(map(repr, grant.names))


#: The statements with which PostgreSQL checks deferred constraints now, and defers them again.
CHECK_DEFERRED = ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")

#: The savepoint of every part. The end of one part sets it for the next.
PART = "distlock_part"
#: The end of a part on PostgreSQL. It is one message, because each request sends it.
END_OF_PART = "; ".join((*CHECK_DEFERRED, f"RELEASE SAVEPOINT {PART}", f"SAVEPOINT {PART}"))

#: Statements whose first word shows that they commit nothing, unless another statement follows.
_HARMLESS = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SAVEPOINT|RELEASE|ROLLBACK|SHOW)\b[^;]*\Z", re.IGNORECASE
)

_STRING = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)|(?:--(?=[\s\x00-\x1f]|\Z)|\#)[^\n]*"

# MySQL and MariaDB execute the content of /*! … */, or the content of /*!80000 … */ if they are new enough.
_EXECUTED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!\d*|\*/|{_COMMENT}", re.DOTALL)
_SKIPPED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!(?:/\*.*?\*/|.)*?\*/|{_COMMENT}", re.DOTALL)

_STATEMENT_FOR = re.compile(r"SET STATEMENT .*? FOR ", re.IGNORECASE)

#: The statements before which MySQL and MariaDB commit: https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/
#: MariaDB's page leaves out BACKUP, INSTALL, UNINSTALL and SET DEFAULT ROLE, which commit as well.
_COMMITS = re.compile(
    r"""
    (?:ALTER|BACKUP|FLUSH|GRANT|INSTALL|OPTIMIZE|RENAME|REPAIR|RESET|REVOKE|TRUNCATE|UNINSTALL)\b
    |CREATE\ (?!(?:OR\ REPLACE\ )?TEMPORARY\ TABLE\b)
    |DROP\ (?!TEMPORARY\ TABLE\b|PREPARE\b)
    |(?:ANALYZE|CHECK)\ (?:(?:NO_WRITE_TO_BINLOG|LOCAL)\ )?(?:TABLES?|VIEW)\b
    |(?:LOCK|UNLOCK)\ TABLES?\b
    |(?:CACHE|LOAD)\ INDEX\b
    |CHANGE\ (?:MASTER|REPLICATION)\b
    |(?:START|STOP)\ (?:ALL\ )?(?:SLAVES?|REPLICAS?|GROUP_REPLICATION)\b
    |START\ TRANSACTION\b
    |BEGIN\b(?!\ NOT\b)
    |SET\ (?:PASSWORD|DEFAULT\ ROLE)\b
    |SET\ (?:.*[,@.\ ])?(?<!GLOBAL[.\ ])AUTOCOMMIT\ ?:?=\ ?(?!0|OFF\b|FALSE\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def refuse_committing(sql: str | bytes) -> None:
    """Raise `ConfigurationError` for a statement before which MySQL and MariaDB commit.

    It recognises statements by their text. One that it can't recognise, such as the CALL of a procedure that
    commits, also ends the savepoint of the part, which is noticed at the end of the part.
    """
    text = sql if isinstance(sql, str) else sql.decode(errors="replace")
    if _HARMLESS.match(text):
        return
    readings = (_EXECUTED, _SKIPPED) if "/*!" in text or "/*M!" in text else (_EXECUTED,)
    for comments in readings:
        for part in comments.sub(_plain, text).split(";"):
            statement = _STATEMENT_FOR.sub("", " ".join(part.split()), count=1)
            if _COMMITS.match(statement):
                raise ConfigurationError(
                    f"A view with batch= would execute {statement.split()[0].upper()}, before which MySQL "
                    "and MariaDB commit what others have not finished. Leave batch= out, or execute it "
                    "elsewhere."
                )


def _plain(token: re.Match[str]) -> str:
    """Return what replaces a string, a quoted name or a comment before a statement is recognised."""
    if token.group(1) is not None:
        return token.group(1)
    return "''" if token.group()[0] in "'\"" else " "
