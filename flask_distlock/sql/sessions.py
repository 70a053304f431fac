"""Flask-SQLAlchemy's session around a locked view. Imports SQLAlchemy only where the site has done so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from flask import (
    Flask,
    Request,
    appcontext_pushed,
    current_app,
    has_app_context,
    has_request_context,
    request,
)

from distlock.current_grants import CurrentGrant, kept_by_request
from distlock.errors import ConfigurationError, LockLost
from distlock.grant import Grant
from distlock.web.guard import check_held
from flask_distlock.guarding.required import refuse_unpassed
from flask_distlock.guarding.status import status_of
from flask_distlock.sql.changes import Changes, Work
from flask_distlock.sql.kept_lock import KeptLock
from flask_distlock.sql.listening import follow
from flask_distlock.sql.open_transactions import joins, refuse_opened
from flask_distlock.sql.session_fences import Fenced, Fences, Left

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

#: What ``fence=True`` means: SQLALCHEMY_DATABASE_URI, which has no name as a bind.
DEFAULT_BIND = "default"


def bind_of(fence: bool | str) -> str | None:
    """The bind that *fence* means; None: none."""
    return DEFAULT_BIND if fence is True else fence or None


class Sessions:
    """The ``db.session`` of one app, if it has one."""

    def __init__(self) -> None:
        self._session: scoped_session[Session] | None = None
        self.changes = Changes()
        self._fences = Fences(self._is_current)
        #: The locks that are kept until the transaction of a session has ended, the innermost first.
        self._kept: WeakKeyDictionary[Session, list[KeptLock]] = WeakKeyDictionary()
        #: What was open when the view of a request began, and what was done in it.
        self._before_view: WeakKeyDictionary[Request, tuple[SessionTransaction | None, Work]] = (
            WeakKeyDictionary()
        )

    def look_out(self, app: Flask) -> None:
        """Watch the app's session from the first app context in which it is there."""
        # There is no use of the session before that.
        appcontext_pushed.connect(self._pushed, app)
        dispatch = app.dispatch_request

        def dispatch_request(*args: Any) -> ResponseReturnValue:
            session = self.current()
            opened = None if session is None else session.get_transaction()
            done = Work(0, 0) if session is None else self.changes.work(session)
            self._before_view[request._get_current_object()] = opened, done  # type: ignore[attr-defined]
            return dispatch(*args)

        app.dispatch_request = dispatch_request  # type: ignore[method-assign]

    def _pushed(self, app: Flask, **_: Any) -> None:
        self.watch(app)

    def watch(self, app: Flask) -> None:
        """Find the app's session, and follow what is written in it."""
        session = getattr(app.extensions.get("sqlalchemy"), "session", None)
        if session is self._session:
            # It may be replaced at any time, as in tests.
            return
        orm = sys.modules.get("sqlalchemy.orm")
        if orm is None or not isinstance(session, orm.scoped_session):
            return
        follow(session, app, self)
        self._session = session

    def transactions(self, where: str, is_view: bool, outlives: bool = True) -> SessionTransactions:
        return SessionTransactions(self, where, is_view, outlives)

    @property
    def found(self) -> bool:
        """Whether the app has one."""
        return self._session is not None

    def current(self) -> Session | None:
        """The session of this request, if it was used already."""
        if self._session is None or not has_app_context() or not self._session.registry.has():
            return None
        return self._session()

    def done_by_view(self, session: Session) -> Work | None:
        """What the view, or the script, has done in the open transaction of *session*.

        None: nothing. Hooks have begun it, as a login does.
        """
        done = self.changes.work(session)
        if not has_request_context():
            return done
        known, asked = self._before_view, request._get_current_object()  # type: ignore[attr-defined]
        opened, before = known.get(asked, (session.get_transaction(), done))
        if opened is not session.get_transaction():
            return done
        mine = Work(done.all - before.all, done.acts - before.acts)
        return mine if mine.all else None

    def keep(self, session: Session, kept: KeptLock) -> None:
        """Let *kept* go when the transaction of *session* has ended."""
        self._kept.setdefault(session, []).append(kept)

    @contextmanager
    def fencing(self, where: str, grant: Grant, fence: str | None, left: Left) -> Iterator[None]:
        """Every transaction of the session in the block passes the fence of the bind *fence*."""
        if fence is None:
            yield
            return
        from flask_distlock.sql.fence_row import fenced

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

    def after_begin(self, session: Session, transaction: SessionTransaction, database: Connection) -> None:
        if transaction.nested:
            return
        self.changes.begin(session, database)
        self._fences.begin(session, database)

    def before_commit(self, session: Session) -> None:
        refuse_unpassed()
        # The last moment at which nothing has happened yet: a lost lock makes the view's commit() raise.
        try:
            check_held()
            self._fences.refuse_commit(session, self.changes.known)
        except LockLost as error:
            for kept in self._kept.get(session, ()):
                kept.refused = error
            raise

    def after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._fences.committed(session)
            for kept in self._kept.get(session, ()):
                kept.committed = True

    def after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is not None:
            return
        self.changes.end(session)
        for kept in tuple(self._kept.get(session, ())):
            kept.transaction_ended()

    def _is_current(self, session: Session) -> bool:
        return session is self.current()


class SessionTransactions:
    """What a guard does about the session: it starts fresh, and its lock is kept while it may be committed.

    *outlives*: whether the lock may outlive the call, in a request.
    """

    def __init__(self, sessions: Sessions, where: str, is_view: bool, outlives: bool = True) -> None:
        self._sessions = sessions
        self._where = where
        self.is_view = is_view
        self._outlives = outlives
        #: What the function returned.
        self.result: object = None
        #: What the end of the transaction has to close, where that comes after the call.
        self._open: ExitStack | None = None
        self._changed = False

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        sessions, session = self._sessions, self._sessions.current()
        if session is None:
            return
        if session.in_transaction():
            mine = None if self.is_view else sessions.done_by_view(session)
            refuse_opened(session, sessions.changes, self._where, names, nested, mine)
            # What was read before the lock may be stale by the time we have it. Reading again is cheap.
            if mine is not None and joins(session):
                # A ROLLBACK would be that of the test around it.
                session.expire_all()
            else:
                session.rollback()
        elif not sessions.changes.known(session):
            # With expire_on_commit=False it still knows what it read before the lock.
            session.expire_all()

    @contextmanager
    def begin(self, grant: Grant, fence: str | None, left: Left) -> Iterator[bool]:
        with ExitStack() as stack:
            stack.enter_context(self._sessions.fencing(self._where, grant, fence, left))
            try:
                # The view commits by itself; `Sessions` checks the lock then.
                yield False
            except BaseException:
                # An error handler might commit what the view left behind.
                if (session := self._sessions.current()) is not None:
                    session.rollback()
                raise
            if self._may_be_committed_later():
                self._open = stack.pop_all()

    def leave(self, held: CurrentGrant, failed: bool) -> ExitStack | None:
        """A block ends, without a transaction of its own. *failed*: because of an error. See `keep`."""
        if self._may_be_committed_later(failed):
            self._open = ExitStack()
        return self.keep(held)

    def keep(self, held: CurrentGrant) -> ExitStack | None:
        """See `distlock.web.guard.Keep`."""
        session, request = self._sessions.current(), kept_by_request()
        if self._open is None or session is None or request is None:
            return None
        kept = KeptLock(session, self._where, self._changed, self._open)
        self._sessions.keep(session, kept)
        request.kept.append(replace(held, kept=kept))
        return kept.rest

    def _may_be_committed_later(self, failed: bool = False) -> bool:
        """Whether somebody may still commit what the call has left. Else it is rolled back.

        Changes that nobody will commit are an error, unless the call has *failed*.
        """
        session = self._sessions.current()
        if session is None or not session.in_transaction():
            return False
        # What a view leaves behind when it refuses was not meant to stay.
        refuses = self.is_view and status_of(self.result) >= 400
        changed = False if refuses else self._sessions.changes.of(session)
        self._changed = changed is True and not failed
        if not changed and joins(session):
            # The transaction is that of a test, around the whole request. No COMMIT of the site ends it.
            return False
        if changed is not False and self._outlives and kept_by_request() is not None:
            return True
        session.rollback()
        if self._changed:
            raise ConfigurationError(
                f"{self._where} returned with uncommitted changes in db.session, and a commit after its lock "
                "is released would be seen too late by the next. They are rolled back: call "
                "db.session.commit() inside it."
            )
        return False
