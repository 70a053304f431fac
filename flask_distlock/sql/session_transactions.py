"""What a guard does about the session: it starts fresh, and its lock is kept while it may be committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from flask import current_app
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from distlock.errors import ConfigurationError
from distlock.grants.current import CurrentGrant, Keeping, kept_by_request
from distlock.grants.grant import Grant
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.kept_lock import KeptSession, keep_in
from flask_distlock.guarding.request import status_of
from flask_distlock.sql.fence_row import fenced
from flask_distlock.sql.open_transactions import joins, refuse_opened
from flask_distlock.sql.session_fences import Fenced, Left
from flask_distlock.sql.sessions import Sessions


class SessionTransactions:
    """See `flask_distlock.guarding.session.GuardTransactions`."""

    def __init__(self, sessions: Sessions, where: str, is_view: bool, outlives: bool = True) -> None:
        self.sessions = sessions
        self._where = where
        self.is_view = is_view
        self._outlives = outlives
        #: The result of the function.
        self.result: object = None
        #: Ends the fencing, where that comes after the call.
        self._open: ExitStack | None = None
        self._changed = False

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        sessions, session = self.sessions, self.sessions.current()
        if session is None:
            return
        if session.in_transaction():
            mine = None if self.is_view else sessions.done_by_view(session)
            refuse_opened(session, sessions.changes, self._where, names, nested, mine)
            # Rows that were read before the lock may be stale by the time we have it. Reading again is cheap.
            if mine is not None and joins(session):
                # A ROLLBACK would be that of the test around it.
                session.expire_all()
            else:
                session.rollback()
        elif not sessions.changes.known(session):
            # With expire_on_commit=False it still knows what it read before the lock.
            session.expire_all()

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Left) -> Iterator[bool]:
        with ExitStack() as stack:
            if fenced_in is not None:
                self._pass_fence(stack, grant, fenced_in, left)
            try:
                # The view commits by itself; `Sessions` checks the lock then.
                yield False
                # A reader may have nothing to commit, and answers all the same.
                if fenced_in is not None and (session := self.sessions.current()) is not None:
                    self._look_again(session)
                self._refuse_dropped(grant)
            except BaseException:
                # An error handler might commit what the view left behind.
                if (session := self.sessions.current()) is not None:
                    session.rollback()
                raise
            if self._request() is not None:
                is_open = self._leave_to_request()
                # A row's lock ends with its transaction.
                if is_open or not grant.held_by_transaction:
                    self._open = stack.pop_all()
            elif self._may_be_committed_later():
                self._open = stack.pop_all()

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        if self._may_be_committed_later(failed):
            self._open = ExitStack()
        return self.keep(current)

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        request, session = kept_by_request(), self.sessions.current()
        # A row's lock is over as soon as its transaction is.
        by_request = self._request() is not None and not current.grant.held_by_transaction
        if request is None or not (by_request or (self._open is not None and session is not None)):
            return None
        kept = KeptSession(
            self._where,
            None if session is None or (joins(session) and not self._changed) else session,
            self._open or ExitStack(),
            changed=self._changed,
            committed=current.grant in self.sessions.committed,
            until_transaction=not by_request,
        )
        if session is not None:
            self.sessions.keep(session, kept)
        return keep_in(request, current, kept)

    def _request(self) -> Keeping | None:
        """Return the request that keeps the lock whatever the view has done; None: there is none."""
        return kept_by_request() if self.is_view and self._outlives else None

    def _leave_to_request(self) -> bool:
        """Leave what is open to the hooks of the request, unless the view refuses. Returns whether it is."""
        session = self.sessions.current()
        if session is None or not session.in_transaction():
            return False
        if not self._refuses():
            self._changed = self.sessions.changes.of(session) is True
        elif not joins(session):
            session.rollback()
        return session.in_transaction()

    def _pass_fence(self, stack: ExitStack, grant: Grant, fenced_in: str, left: Left) -> None:
        """Every transaction of the session passes the fence of this bind, until *stack* is closed."""
        engine = self.engine_of(fenced_in)
        session = self.sessions.session()
        stack.enter_context(fenced(session, engine, grant, left, fenced_in))
        # The rows of the fence are locked until these transactions end.
        stack.callback(self._roll_back, session)
        stack.enter_context(self.sessions.fences.passing(session, Fenced(engine, grant, left)))

    def _look_again(self, session: Session) -> None:
        if session.in_transaction():
            self.sessions.fences.look_again(session)
            if not self._refuses():
                # The view has not called session.commit(). If the driver's commit() stood in its place, more
                # than the fenced transaction may have been committed.
                self.sessions.fences.refuse_ended(session)

    def _roll_back(self, session: Session) -> None:
        session.rollback()
        if (other := self.sessions.current()) is not None and other is not session:
            other.rollback()

    def _refuse_dropped(self, grant: Grant) -> None:
        """Raise `ConfigurationError` if the call succeeds, and has left an app context with changes."""
        if grant in self.sessions.dropped and not self._refuses():
            raise ConfigurationError(
                f"{self._where} has left an app context, as at the end of 'with app.app_context():', with "
                "uncommitted changes in its db.session, which are rolled back: call db.session.commit() or "
                "rollback() inside that block."
            )

    def _refuses(self) -> bool:
        """Return whether the view answers with an error: what it leaves behind was not meant to stay."""
        return self.is_view and status_of(self.result) >= 400

    @contextmanager
    def ending_all(self, grant: Grant) -> Iterator[None]:
        """At the end of the block nothing of the session is open. Raises `ConfigurationError` for changes."""
        try:
            yield
            self._refuse_dropped(grant)
            # The view has its last moment to commit now: nothing is kept.
            self._outlives = False
            self._may_be_committed_later()
        finally:
            if (session := self.sessions.current()) is not None:
                session.rollback()

    def engine_of(self, fenced_in: str) -> Engine:
        db: Any = current_app.extensions.get("sqlalchemy")
        engine: Engine | None = engine_of(db.engines, fenced_in)
        if engine is None:
            raise ConfigurationError(
                f"{self._where} has fence={fenced_in!r}, which SQLALCHEMY_BINDS does not have: it has "
                f"{shown(bind for bind in db.engines if bind is not None)}."
            )
        return engine

    def _may_be_committed_later(self, failed: bool = False) -> bool:
        """Whether the site may still commit what the call has left. Else it is rolled back.

        Changes that nobody will commit are an error, unless the call has *failed*.
        """
        session = self.sessions.current()
        if session is None or not session.in_transaction():
            return False
        changed = False if self._refuses() else self.sessions.changes.of(session)
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
