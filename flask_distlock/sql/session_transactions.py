"""What a guard does about the session: it starts fresh, and its lock is kept while it may be committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from flask import current_app
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from distlock.current_grants import CurrentGrant, kept_by_request
from distlock.errors import ConfigurationError
from distlock.grant import Grant
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.kept_lock import KeptLock
from flask_distlock.guarding.status import status_of
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
        #: What the function returned.
        self.result: object = None
        #: What the end of the transaction has to close, where that comes after the call.
        self._open: ExitStack | None = None
        self._changed = False

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        sessions, session = self.sessions, self.sessions.current()
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
            except BaseException:
                # An error handler might commit what the view left behind.
                if (session := self.sessions.current()) is not None:
                    session.rollback()
                raise
            if self._may_be_committed_later():
                self._open = stack.pop_all()

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        if self._may_be_committed_later(failed):
            self._open = ExitStack()
        return self.keep(current)

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        if self._open is None:
            return None
        session, request = self.sessions.current(), kept_by_request()
        if session is None or request is None:
            return None
        kept = KeptLock(session, self._where, self._changed, self._open)
        self.sessions.keep(session, kept)
        request.kept.append(replace(current, kept=kept))
        return kept.rest

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

    def _roll_back(self, session: Session) -> None:
        session.rollback()
        if (other := self.sessions.current()) is not None and other is not session:
            other.rollback()

    @contextmanager
    def ending_all(self) -> Iterator[None]:
        """At the end of the block nothing of the session is open. Raises `ConfigurationError` for changes."""
        try:
            yield
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
        # What a view leaves behind when it refuses was not meant to stay.
        refuses = self.is_view and status_of(self.result) >= 400
        changed = False if refuses else self.sessions.changes.of(session)
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
