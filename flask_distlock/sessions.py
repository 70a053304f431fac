"""Flask-SQLAlchemy's session around a locked view. Imports SQLAlchemy only where the site has done so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from flask import Flask, appcontext_pushed, current_app

from distlock.errors import ConfigurationError
from distlock.grant import Grant
from distlock.web.guard import check_held
from flask_distlock.fencing import Fenced, Fences, Left

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

#: An execution option of what the guard itself sends.
FENCE = "distlock_fence"

#: How statements begin that change no rows.
_HARMLESS = {"SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "PRAGMA", "EXPLAIN", "SHOW", "SET"}

#: What ``fence=True`` means: SQLALCHEMY_DATABASE_URI, which has no name as a bind.
DEFAULT_BIND = "default"


def bind_of(fence: bool | str) -> str | None:
    """The bind that *fence* means; None: none."""
    return DEFAULT_BIND if fence is True else fence or None


class Sessions:
    """The ``db.session`` of one app, if it has one."""

    def __init__(self) -> None:
        self._session: scoped_session[Session] | None = None
        #: Whose transactions connections are in.
        self._in: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()
        #: Sessions that have sent writes to the database, so that they look clean and are not.
        self._wrote: WeakSet[Session] = WeakSet()
        self._fences = Fences(self._is_current)

    def look_out(self, app: Flask) -> None:
        """Watch the app's session from the first app context in which it is there."""
        # There is no use of the session before that.
        appcontext_pushed.connect(self._pushed, app)

    def _pushed(self, app: Flask, **_: Any) -> None:
        self.watch(app)

    def watch(self, app: Flask) -> None:
        """Find the app's session, and follow what is written in it."""
        if self._session is not None:
            return
        session = getattr(app.extensions.get("sqlalchemy"), "session", None)
        orm = sys.modules.get("sqlalchemy.orm")
        if orm is None or not isinstance(session, orm.scoped_session):
            return
        from sqlalchemy import event

        event.listen(session, "after_begin", self._after_begin)
        event.listen(session, "before_commit", self._before_commit)
        event.listen(session, "after_commit", self._after_commit)
        event.listen(session, "after_transaction_end", self._after_transaction_end)
        self._session = session

    def transactions(self, where: str, is_view: bool) -> SessionTransactions:
        return SessionTransactions(self, where, is_view)

    def current(self) -> Session | None:
        """The session of this request, if it was used already."""
        if self._session is None or not self._session.registry.has():
            return None
        return self._session()

    def has_changes(self, session: Session) -> bool:
        """Whether *session* holds anything that a COMMIT would write."""
        if session.new or session.deleted or any(map(session.is_modified, session.dirty)):
            return True
        return session in self._wrote and session.in_transaction()

    @contextmanager
    def fencing(self, where: str, grant: Grant, fence: str | None, left: Left) -> Iterator[None]:
        """Every transaction of the session in the block passes the fence of the bind *fence*."""
        if fence is None:
            yield
            return
        from flask_distlock.fence import fenced

        session, engine = self._session_and_engine(where, fence)
        with fenced(session, engine, grant, left, fence):
            try:
                with self._fences.passing(session, Fenced(engine, grant, left)):
                    yield
            finally:
                # The rows of the fence are locked until these transactions end.
                session.rollback()
                if (other := self.current()) is not None and other is not session:
                    other.rollback()

    def _session_and_engine(self, where: str, fence: str) -> tuple[Session, Engine]:
        db: Any = current_app.extensions.get("sqlalchemy")
        if self._session is None:
            raise ConfigurationError(
                f"{where} has a fence, which needs the db.session of Flask-SQLAlchemy: write "
                "'db.init_app(app)' before the first request, or leave fence= out."
            )
        engines = db.engines
        bind = None if fence == DEFAULT_BIND else fence
        if bind not in engines:
            known = ", ".join(repr(key) for key in engines if key is not None) or "none"
            raise ConfigurationError(
                f"{where} has fence={fence!r}, and SQLALCHEMY_BINDS has not: it has {known}."
            )
        return self._session(), engines[bind]

    def _after_begin(self, session: Session, transaction: SessionTransaction, database: Connection) -> None:
        if transaction.nested:
            return
        self._follow(session, database)
        self._fences.begin(session, database)

    def _follow(self, session: Session, database: Connection) -> None:
        """See all that is sent: a flush, bulk operations, and statements on the connection itself."""
        from sqlalchemy import event

        self._in[database] = session
        event.listen(database, "before_cursor_execute", self._on_statement)

    def _on_statement(
        self, database: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        compiled = getattr(context.compiled, "statement", None)
        if getattr(compiled, "is_select", False) or FENCE in context.execution_options:
            return
        session, words = self._in.get(database), statement.split(maxsplit=1)
        if session is not None and words and words[0].upper() not in _HARMLESS:
            self._wrote.add(session)

    def _after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self._wrote.discard(session)

    def _before_commit(self, session: Session) -> None:
        # The last moment at which nothing has happened yet: a lost lock makes the view's commit() raise.
        check_held()
        self._fences.refuse_commit(session, self.has_changes)

    def _after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._fences.committed(session)

    def _is_current(self, session: Session) -> bool:
        return session is self.current()


class SessionTransactions:
    """What a guard does about the session: it starts fresh, and nothing stays to be committed later."""

    def __init__(self, sessions: Sessions, where: str, is_view: bool) -> None:
        self._sessions = sessions
        self._where = where
        self.is_view = is_view
        #: What the function returned.
        self.result: object = None

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        session = self._sessions.current()
        if session is None:
            return
        if not session.in_transaction():
            if not self._sessions.has_changes(session):
                # With expire_on_commit=False it still knows what it read before the lock.
                session.expire_all()
            return
        shown = ", ".join(map(repr, names))
        if nested:
            raise ConfigurationError(
                f"{self._where} would be locked on {shown} inside the transaction of the guard around it: "
                f"name all locks in one place, the outer one: @distributed_lock(…, {shown}), or the rule."
            )
        if _begun(session):
            raise ConfigurationError(
                f"{self._where} would be locked on {shown} inside a transaction that db.session.begin() has "
                "opened, and let go before its COMMIT: write 'with db.session.begin():' inside "
                f"{self._where}, or @distributed_lock(…) on the function around both."
            )
        if self._sessions.has_changes(session):
            raise ConfigurationError(
                f"db.session has changes that are not committed, and {self._where} is about to wait for "
                f"{shown}. They would be committed together. Call db.session.commit() or rollback() before."
            )
        # What was read before the lock may be stale by the time we have it. Reading again is cheap.
        session.rollback()

    @contextmanager
    def begin(self, grant: Grant, fence: str | None, left: Left) -> Iterator[bool]:
        with self._sessions.fencing(self._where, grant, fence, left), self._settled():
            # The view commits by itself; `Sessions` checks the lock then.
            yield False

    @contextmanager
    def _settled(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # An after_request hook might commit what the view left behind, after the release.
            self._roll_back()
            raise
        # What a view leaves behind when it refuses was not meant to stay.
        if self._roll_back() and not (self.is_view and _status(self.result) >= 400):
            raise ConfigurationError(
                f"{self._where} returned with uncommitted changes in db.session, and a commit after its lock "
                "is released would be seen too late by the next. They are rolled back: call "
                "db.session.commit() inside it."
            )

    def _roll_back(self) -> bool:
        """Roll uncommitted changes back. Whether there were any."""
        session = self._sessions.current()
        if session is None or not self._sessions.has_changes(session):
            return False
        session.rollback()
        return True


def _begun(session: Session) -> bool:
    """Whether somebody has begun the transaction of *session* in so many words, and means to end it."""
    transaction = session.get_transaction()
    explicit = transaction is not None and transaction.origin.name == "BEGIN"
    return explicit or session.in_nested_transaction()


def _status(result: Any) -> int:
    """The status of what a view returned, in all the forms that Flask takes."""
    status = getattr(result, "status_code", 200)
    if isinstance(result, tuple) and len(result) > 1 and isinstance(result[1], int | str):
        status = result[1]
    return int(str(status).split(maxsplit=1)[0])
