"""Whether a session has changed something: SQLAlchemy's word, and the database's own. No SQL is read."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from flask_distlock.private import is_savepoint
from flask_distlock.sql.dialects import (
    FENCE,
    LOCKING,
    WRITING,
    Seen,
    changed,
    commits_by_itself,
    holds_locks,
    seen_at_begin,
)
from flask_distlock.sql.joining import shared_connection


class Work(NamedTuple):
    """How many statements were sent in a transaction."""

    all: int
    #: Statements that have returned no rows, such as those that set something for the transaction.
    acts: int


NOTHING = Work(0, 0)


class Changes:
    """The changes of one app's sessions in their open transactions."""

    def __init__(self) -> None:
        #: The connections of the open transactions, with what was seen when they began. None: each statement
        #: is committed when it is sent.
        self._begun: WeakKeyDictionary[Session, dict[Connection, Seen | None]] = WeakKeyDictionary()
        #: The sessions whose transactions connections are in.
        self._in: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()
        #: Sessions that have sent changes to the database, so that they look clean and are not.
        self._sent: WeakSet[Session] = WeakSet()
        #: Statements that have changed nothing, but leave locks for which changes would be taken.
        self._quiet: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
        self._work: WeakKeyDictionary[Session, Work] = WeakKeyDictionary()

    def begin(self, session: Session, connection: Connection) -> None:
        """*session* has begun a transaction on *connection*."""
        begun = self._begun.setdefault(session, {})
        if commits_by_itself(connection):
            # Each statement is committed at once, so nobody could forget a COMMIT.
            begun[connection] = None
            return
        self._in[connection] = session
        event.listen(connection, "after_cursor_execute", self._executed)
        # The database reports on a shared connection as a whole, so the executed statements have to do.
        begun[connection] = None if shared_connection.get() is connection else seen_at_begin(connection)

    def end(self, session: Session) -> None:
        """The transaction of *session* has ended."""
        self._sent.discard(session)
        self._work.pop(session, None)
        self._quiet.pop(session, None)
        self._begun.pop(session, None)

    def known(self, session: Session) -> bool:
        """Whether SQLAlchemy knows of changes that a COMMIT would write."""
        if session.new or session.deleted or any(map(session.is_modified, session.dirty)):
            return True
        return session in self._sent and session.in_transaction()

    def of(self, session: Session) -> bool | None:
        """Whether *session* has changes; None: its database can't tell, and SQLAlchemy knows of none."""
        if self.known(session):
            return True
        quiet = self._quiet.get(session, set())
        begun = self._begun.get(session, {}).items()
        answers = {changed(connection, before, quiet) for connection, before in begun if before is not None}
        return True if True in answers else None if None in answers else False

    def holds_locks(self, session: Session) -> bool | None:
        """Whether the end of *session*, which has no changes, lets locks go that its site has taken.

        None: its database can't tell, or nobody has seen how the transaction began.
        """
        if session not in self._begun:
            return None
        answers = {holds_locks(connection) for connection in self._begun[session]}
        return True if True in answers else None if None in answers else False

    def work(self, session: Session) -> Work:
        """Return what *session* has done in its transaction."""
        return self._work.get(session, NOTHING)

    def _executed(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        session = self._in.get(connection)
        if session is None:
            return
        if FENCE in context.execution_options:
            # The fence's own row is no change of the site's.
            counts = context.execution_options[FENCE] and connection.dialect.name == "sqlite"
            if counts and (begun := self._begun.get(session)) is not None:
                begun[connection] = seen_at_begin(connection)
            return
        asked, acted = self._work.get(session, NOTHING)
        writes = context.isinsert or context.isupdate or context.isdelete
        acts = cursor.description is None and (writes or not is_savepoint(context))
        self._work[session] = Work(asked + 1, acted + acts)
        # A statement without rows is no read, whatever its words; SET and SAVEPOINT count none.
        counted = bool(cursor.rowcount) if writes else cursor.description is None and cursor.rowcount > 0
        # SQLite counts what an INSERT returns only when that has been fetched.
        uncounted = context.isinsert and cursor.description is not None
        if counted or (uncounted and connection.dialect.name == "sqlite"):
            self._sent.add(session)
            return
        word, rows = _tag(cursor)
        if word in WRITING and rows > 0 and not writes:
            self._sent.add(session)
        elif word in WRITING | LOCKING:
            self._quiet.setdefault(session, set()).add(word)
        elif not word and (writes or cursor.description is None) and cursor.rowcount == 0:
            # Other drivers than psycopg.
            self._quiet.setdefault(session, set()).add("UPDATE")


def _tag(cursor: Any) -> tuple[str, int]:
    """Return PostgreSQL's name for the statement of *cursor*, and its row count."""
    words = str(getattr(cursor, "statusmessage", None) or "").split()
    if words and words[-1].isdigit():
        return words[0], int(words[-1])
    return " ".join(words), 0
