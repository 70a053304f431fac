"""A batch: requests of this process that wait for one name, in one transaction, with one COMMIT and fence.

The first has the lock, and begins the transaction, which goes round: each carries out its part of it in a
thread of its own, and then takes along the one that is next in line. After the last part the first one
commits, and all are told what became of it. What a part is, and what goes round, is the framework's.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from distlock.engine.drivers import ThreadParker
from distlock.errors import BatchFailed, ConfigurationError, LockLost, OutcomeUnknown
from distlock.grants.current import note_asked_for, was_asked_for
from distlock.grants.grant import Grant
from distlock.terms import Seat

C = TypeVar("C")

#: Rolls back what goes round, and closes it.
CleanUp = Callable[[], object]

#: The work that a part leaves until after COMMIT, in the framework's words.
Hooks = list[Any]

_COMMITTED = object()


class BatchSeat(Seat):
    """Of one request: the first of a batch, or one that was taken along."""

    __slots__ = ("led", "over", "parker")

    def __init__(self, key: object) -> None:
        super().__init__(key)
        #: Where it sleeps until it is known what became of the transaction.
        self.parker = ThreadParker()
        #: Its part was carried out, or never will be.
        self.over = False
        #: The batch of which it was the first, and that has committed.
        self.led: Batch[Any] | None = None

    def leave(self, grant: Grant | None = None) -> None:
        """Its part is over, if it was taken along: the next one's begins. A second time does nothing.

        *grant*: the one that it had.
        """
        if isinstance(self.batch, Batch) and not self.over:
            self.over = True
            if grant is not None and was_asked_for(grant):
                note_asked_for(self.batch.grant)
            self.batch.go_on()

    def end(self) -> None:
        """Its lock is given back: the others may answer, if it was the first. A second time does nothing.

        Those that answer would keep the interpreter from the release, and so from who has the lock next.
        """
        self.leave()
        if self.led is not None:
            self.led.committed()


class Batch(Generic[C]):
    """*grant*: of the first. *carried*: what goes round. *most*: how many parts there may be."""

    def __init__(self, grant: Grant, carried: C, most: int) -> None:
        self.grant = grant
        self.carried = carried
        self._places = most - 1
        #: The first sleeps there until the last part is over.
        self._over = ThreadParker()
        self._are_over = False
        #: The work that the first part has left until after the last one.
        self._clean_up: CleanUp = lambda: None
        self._mutex = threading.Lock()
        self._waiting: list[ThreadParker] = []
        #: `_COMMITTED`, or why it was not; None: that is not known yet.
        self._outcome: object = None
        self._committing = False
        #: The savepoint of the next part stands already.
        self.prepared = False
        #: Why no further part can be carried out, and nothing is committed.
        self.broken: Exception | None = None
        #: Values that parts leave to later parts, and the work after COMMIT, by place.
        self.left: dict[object, object] = {}
        self._settling = threading.Lock()
        #: How many go on after COMMIT with what needs the lock still.
        self._after = 0
        self._nobody_after = ThreadParker()

    # -- the parts, one after the other ----------------------------------------------------------

    def go_on(self) -> None:
        """A part is over: the next one in line is taken along, or the first goes on."""
        if self.broken is None and self._outcome is None and self._places > 0:
            self._places -= 1
            if self.grant._take_along(self):
                return
        with self._mutex:
            self._are_over = True
        self._clean_up()
        self._over.wake()

    @property
    def goes_on(self) -> bool:
        """Whether a part has said `stay`."""
        return self._after > 0

    def break_off(self, why: Exception) -> None:
        """A part has left nothing that could be gone on with, or committed."""
        self.broken = self.broken or why

    def stay(self) -> None:
        """The running part goes on after COMMIT, under the lock: see `stayed`."""
        self._after += 1

    def settle(self, place: object, do: Callable[[Any], object]) -> None:
        """After COMMIT: *do* once what is to be done with what was `left` at *place*. Others wait for it."""
        with self._settling:
            if place in self.left:
                do(self.left[place])
                del self.left[place]

    # -- the first -------------------------------------------------------------------------------

    def finish_parts(self, leave: Callable[[], CleanUp]) -> None:
        """Of the first, after its part: the others', and then the last look before COMMIT.

        *leave*: called where the lock is lost while a part goes on: what goes round is its thread's then.
        Raises what keeps them from COMMIT: `LockLost`, `BatchFailed`, `OutcomeUnknown`.
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
        # The last moment at which nothing has happened yet.
        self.grant.check()
        with self._mutex:
            self._committing = self._outcome is None
        self._raise_outcome()

    def committed(self) -> None:
        """COMMIT is over. A second time does nothing."""
        self._tell(_COMMITTED)

    def failed(self, error: BaseException, is_known: Callable[[BaseException], bool]) -> BaseException:
        """*error* came of the transaction. What to raise in its place, here and by all others.

        *is_known*: whether *error* of a COMMIT says that nothing was committed.
        """
        if self._outcome is _COMMITTED:
            return error
        if self._committing and not is_known(error):
            error = unknown(self.grant, error)
        self._tell(error)
        return self._seen_by_others(error) if isinstance(error, Exception) else error

    def wait_for_others(self) -> None:
        """Wait for those that have said `stay`, for as long as there is a lock that they need."""
        while True:
            with self._mutex:
                if not self._after or self.grant.lost:
                    return
            self._nobody_after.wait(self._lease())

    # -- the others ------------------------------------------------------------------------------

    def take_in(self, grant: Grant) -> None:
        """Of one that was taken along, before its part. Raises `LockLost` where it woke up too late."""
        grant._join(self.grant)
        grant.check()

    def wait(self, seat: BatchSeat) -> None:
        """Of one that was taken along: wait for COMMIT. Raises what kept the batch from it.

        A part that hangs keeps nobody: when the lock is lost it can't be committed any more.
        """
        with self._mutex:
            self._waiting.append(seat.parker)
        while self._outcome is None:
            seat.parker.wait(math.inf if self._committing else self._lease())
            self._look_after_lock()
        self._raise_outcome()

    def stayed(self) -> None:
        """What was to be done after COMMIT, under the lock, is done."""
        with self._mutex:
            self._after -= 1
        self._nobody_after.wake()

    # --------------------------------------------------------------------------------------------

    def _look_after_lock(self) -> None:
        """Without its lock the batch is never committed, however long its parts still take."""
        with self._mutex:
            if self._outcome is None and not self._committing and self.grant.lost:
                self._outcome = LockLost(
                    f"The lock {_names(self.grant)} was lost before the COMMIT of the batch: "
                    f"{self.grant.why_lost}. Nothing was done."
                )

    def _lease(self) -> float:
        """Seconds until the lock may be lost."""
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
        # Each gets an exception of its own, because threads that raise one write into one traceback.
        mine: Exception = kind(text)
        mine.__cause__ = error
        return mine


def unknown(grant: Grant, error: BaseException | None) -> OutcomeUnknown:
    """For a transaction of which nobody knows how it has ended."""
    found = OutcomeUnknown(
        f"What became of the transaction that requests for the lock {_names(grant)} shared is not known: it "
        f"may have been committed. {error or 'It had ended before its COMMIT.'}"
    )
    found.__cause__ = error
    return found


def _names(grant: Grant) -> str:
    return ", ".join(map(repr, grant.names))


#: Deferred constraints are checked now, on PostgreSQL, and then deferred again.
CHECK_DEFERRED = ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")

#: The savepoint of each part. It has one name, so that the end of one part makes it for the next.
PART = "distlock_part"
#: That end on PostgreSQL, in one message: each request sends it.
END_OF_PART = "; ".join((*CHECK_DEFERRED, f"RELEASE SAVEPOINT {PART}", f"SAVEPOINT {PART}"))

#: Statements that commit nothing, whatever follows their first word, as long as no other statement follows.
_HARMLESS = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SAVEPOINT|RELEASE|ROLLBACK|SHOW)\b[^;]*\Z", re.IGNORECASE
)

_STRING = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)|(?:--(?=[\s\x00-\x1f]|\Z)|\#)[^\n]*"

# MySQL and MariaDB execute the content of /*! … */, or the content of /*!80000 … */ if they are new enough.
_EXECUTED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!\d*|\*/|{_COMMENT}", re.DOTALL)
_SKIPPED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!(?:/\*.*?\*/|.)*?\*/|{_COMMENT}", re.DOTALL)

_STATEMENT_FOR = re.compile(r"SET STATEMENT .*? FOR ", re.IGNORECASE)

#: What MySQL and MariaDB commit before they do it: https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/
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

    It knows statements by their text. Others that commit, such as CALL of a procedure, end the savepoint of
    the part, which is noticed at its end.
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
    """Return what stands for a string, a quoted name or a comment where statements are recognised."""
    if token.group(1) is not None:
        return token.group(1)
    return "''" if token.group()[0] in "'\"" else " "
